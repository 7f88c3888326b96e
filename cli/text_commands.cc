#include "cli/text_commands.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/files/file.h"
#include "cli/flags/choices.h"
#include "cli/text.h"
#include "json/writer.h"
#include "sluice/detokenizer.hpp"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

// Of a model's folder its tokenizer; any other path is a file itself.
std::string FileOf(const std::string& path) {
  for (const char* name : {"tokenizer.json", "tokenizer.model"}) {
    const std::filesystem::path file = std::filesystem::path(path) / name;
    std::error_code error;
    if (std::filesystem::is_regular_file(file, error)) return file.string();
  }
  return path;
}

Tokenizer Load(const TokenizerFile& file) {
  const std::string path = FileOf(file.path);
  CheckIsFile(path);
  std::vector<SpecialToken> special;
  for (const std::string& given : file.special_tokens) {
    const size_t sign = given.rfind('=');
    int32_t id = 0;
    const char* const last = given.data() + given.size();
    const char* const first = sign == std::string::npos ? last : given.data() + sign + 1;
    const auto [end, error] = std::from_chars(first, last, id);
    if (error != std::errc() || end != last || sign == 0) {
      throw Error(ErrorCode::kInvalidValue, "special-token", Quoted(given), "TEXT=ID");
    }
    special.push_back({std::string_view(given).substr(0, sign), id});
  }
  return Tokenizer::FromFile(path,
                             {.decoder = TokenDecoderByName(file.decoder),
                              .tiktoken = {.pattern = file.pattern, .special_tokens = special}});
}

// Whole numbers with anything but letters between them: a list of a program, a line of JSON.
std::vector<int32_t> IdsOf(std::string_view text) {
  std::vector<int32_t> ids;
  const char* const last = text.data() + text.size();
  for (const char* at = text.data(); at != last;) {
    if (std::string_view(" \t\r\n,[]").find(*at) != std::string_view::npos) {
      ++at;
      continue;
    }
    int32_t id = 0;
    const auto [end, error] = std::from_chars(at, last, id);
    if (error != std::errc()) {
      const std::string_view rest(at, static_cast<size_t>(last - at));
      const std::string word(rest.substr(0, rest.find_first_of(" \t\r\n,[]")).substr(0, 40));
      throw Error(ErrorCode::kInvalidValue, "ids", Quoted(word),
                  error == std::errc::result_out_of_range
                      ? "[-2147483648, 2147483647]"
                      : "whole numbers with spaces or commas between them");
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

template <typename Given>
void AddCommon(CLI::App& command, TokenizerFile& file, const char* name, Given& given,
               const char* help, std::string& input, bool& as_json) {
  command
      .add_option("TOKENIZER", file.path,
                  "a tokenizer.json, tokenizer.model or *.tiktoken, or a folder with one")
      ->type_name("PATH")
      ->required();
  CLI::Option* const in_words = command.add_option(name, given, help)->type_name(name);
  command.add_option("--input", input, "read this file; - is standard input")
      ->type_name("FILE")
      ->capture_default_str()
      ->excludes(in_words);
  command
      .add_option(
          "--decoder", file.decoder,
          "how tokens become text: auto, bytelevel or spm; for a file that is wrong about it")
      ->type_name(ChoiceType({"auto", "bytelevel", "spm"}))
      ->capture_default_str();
  command
      .add_option("--pattern", file.pattern,
                  "the pattern that cuts text into words, which a *.tiktoken file lacks")
      ->type_name("REGEX");
  command
      .add_option("--special-token", file.special_tokens,
                  "a special token, which a *.tiktoken file lacks; may be given many times")
      ->type_name("TEXT=ID")
      ->allow_extra_args(false);
  command.add_flag("--json", as_json, "write one JSON object");
}

}  // namespace

void RunTokenize(const TokenizeOptions& options, std::ostream& out) {
  const Tokenizer tokenizer = Load(options.tokenizer);
  const std::string text =
      options.text == "-" ? ReadTextFile("input", options.input_path) : options.text;
  const std::vector<int32_t> ids =
      tokenizer.Encode(text, {options.adds_special_tokens, options.parses_special_tokens});
  if (!options.as_json) {
    for (size_t i = 0; i < ids.size(); ++i) out << (i == 0 ? "" : " ") << ids[i];
    out << '\n';
    return;
  }
  JsonWriter json(out);
  json.Object([&] {
    json.Key("ids").Array([&] {
      for (const int32_t id : ids) json.Value(int64_t{id});
    });
  });
  out << '\n';
}

void RunDetokenize(const DetokenizeOptions& options, std::ostream& out) {
  const Tokenizer tokenizer = Load(options.tokenizer);
  const std::string given = CLI::detail::join(options.ids, " ");
  const std::vector<int32_t> ids =
      IdsOf(given == "-" ? ReadTextFile("input", options.input_path) : given);
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = !options.shows_special_tokens});
  std::string text;
  detokenizer.Step(ids, text);
  detokenizer.Finish(text);
  if (!options.as_json) {
    out << text;
    const int64_t unknown = detokenizer.unknown_ids();
    if (unknown > 0) std::cerr << "sluice: ids without a token were left out: " << unknown << '\n';
    return;
  }
  JsonWriter json(out);
  json.Object([&] {
    json.Key("text").Value(text);
    json.Key("unknown_ids").Value(detokenizer.unknown_ids());
  });
  out << '\n';
}

void AddTextCommands(CLI::App& app, std::function<void()>& action) {
  CLI::App* const tokenize = app.add_subcommand("tokenize", "turn text into token ids");
  const auto to_ids = std::make_shared<TokenizeOptions>();
  AddCommon(*tokenize, to_ids->tokenizer, "TEXT", to_ids->text,
            "the text; without it, or for -, standard input", to_ids->input_path, to_ids->as_json);
  tokenize->add_flag("!--no-special-tokens", to_ids->adds_special_tokens,
                     "add no special tokens around the text");
  tokenize->add_flag("--parse-special-tokens", to_ids->parses_special_tokens,
                     "turn special tokens that the text spells out into those tokens");
  tokenize->callback([&action, to_ids] { action = [to_ids] { RunTokenize(*to_ids, std::cout); }; });

  CLI::App* const detokenize = app.add_subcommand("detokenize", "turn token ids into text");
  const auto to_text = std::make_shared<DetokenizeOptions>();
  AddCommon(*detokenize, to_text->tokenizer, "ID", to_text->ids,
            "the ids; without them, or for -, standard input", to_text->input_path,
            to_text->as_json);
  detokenize->add_flag("--show-special-tokens", to_text->shows_special_tokens,
                       "write special tokens too");
  detokenize->callback(
      [&action, to_text] { action = [to_text] { RunDetokenize(*to_text, std::cout); }; });
}

}  // namespace sluice::cli
