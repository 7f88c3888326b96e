#include "sluice/model_text.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "engine/files/text_file.h"
#include "json/writer.h"
#include "model/config.h"
#include "model/json_fields.h"
#include "sluice/chat_template.hpp"
#include "support/check.h"

namespace sluice {

struct ModelText::Parts {
  Tokenizer tokenizer;
  GenerationConfig generation_config = {};
  std::optional<ChatTemplate> chat_template = {};
  std::string chat_template_source = {};
  // The first members of the object that the template gets: "bos_token":"<s>","eos_token":"".
  std::string special_tokens = {};
  std::vector<int32_t> end_tokens = {};
  int64_t vocab = 0;
};

namespace {

// Special tokens that templates name; the first two also where the files name none.
constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

// A token of tokenizer_config.json: its text, or an object that has it as "content".
std::string TokenText(const model::JsonFields& fields, std::string_view name) {
  const auto value = fields.Find(name);
  if (!value.has_value()) return "";
  if (value->is_object()) return fields.Object(name)->Text("content", "");
  return fields.Text(name, "");
}

// The template, or of a list of named ones that which is called "default".
std::string TemplateText(const model::JsonFields& fields) {
  const auto value = fields.Find("chat_template");
  if (!value.has_value()) return "";
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) return fields.Text("chat_template", "");
  for (const simdjson::dom::element item : list) {
    simdjson::dom::object object;
    if (item.get(object) != simdjson::SUCCESS) continue;
    const model::JsonFields named(object, fields.NameOf("chat_template"));
    if (named.Text("name", "") == "default") return named.Text("template", "");
  }
  return "";
}

// tokenizer_config.json, as far as it is read.
struct TokenizerConfig {
  std::string special_tokens = {};  // as Parts has them
  std::string eos_token = {};
  std::string chat_template = {};
};

TokenizerConfig ParseTokenizerConfig(std::string_view json) {
  constexpr const char* kName = "tokenizer_config.json";
  if (json.empty()) json = "{}";
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) {
    ThrowInvalid(kName, "no JSON object", "a JSON object");
  }
  const model::JsonFields fields(object, kName);
  std::ostringstream members;
  JsonWriter writer(members);
  for (const std::string_view name : kSpecialTokens) {
    const bool is_always_there = name == "bos_token" || name == "eos_token";
    if (is_always_there || fields.Has(name)) writer.Key(name).Value(TokenText(fields, name));
  }
  return {.special_tokens = std::move(members).str(),
          .eos_token = TokenText(fields, "eos_token"),
          .chat_template = TemplateText(fields)};
}

// Sorted, each once.
std::vector<int32_t> EndTokens(const Tokenizer& tokenizer, const std::vector<int32_t>& authors,
                               const model::ConfigTokens& config, std::string_view eos_token) {
  std::vector<int32_t> ends = authors;
  int64_t vocab = tokenizer.size();
  ends.insert(ends.end(), config.end_tokens.begin(), config.end_tokens.end());
  if (config.vocab > 0) vocab = std::min(vocab, config.vocab);
  const auto cannot_be_drawn = [vocab](int32_t id) { return id >= vocab; };
  std::erase_if(ends, cannot_be_drawn);
  if (ends.empty() && !eos_token.empty()) {
    if (const auto id = tokenizer.Id(eos_token)) ends.push_back(*id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::erase_if(ends, cannot_be_drawn);
  return ends;
}

}  // namespace

ModelText ModelText::Open(const std::string& directory) {
  const auto read = [&](const char* name) {
    return engine::ReadTextFile(directory + "/" + name).value_or("");
  };
  const std::string config = read("config.json");
  const std::string generation_config = read("generation_config.json");
  const std::string tokenizer_config = read("tokenizer_config.json");
  const std::string chat_template = read("chat_template.jinja");
  const std::string name = engine::TokenizerPath(directory);
  const std::optional<std::string> tokenizer = engine::ReadTextFile(name);
  if (!tokenizer.has_value()) {
    ThrowInvalid("model", ToText(directory) + ", without a tokenizer",
                 "a folder with config.json, *.safetensors and tokenizer.json or tokenizer.model");
  }
  return Make(name.ends_with(".json") ? Tokenizer::FromJson(*tokenizer)
                                      : Tokenizer::FromSentencePiece(*tokenizer),
              {.config = config,
               .generation_config = generation_config,
               .tokenizer_config = tokenizer_config,
               .chat_template = chat_template});
}

ModelText ModelText::FromFiles(const ModelTextFiles& files) {
  return Make(Tokenizer::FromJson(files.tokenizer), files);
}

ModelText ModelText::Make(Tokenizer tokenizer, const ModelTextFiles& files) {
  TokenizerConfig config = ParseTokenizerConfig(files.tokenizer_config);
  Parts parts{.tokenizer = std::move(tokenizer),
              .special_tokens = std::move(config.special_tokens)};
  const std::string_view source =
      files.chat_template.empty() ? config.chat_template : files.chat_template;
  if (!source.empty()) parts.chat_template.emplace(source);
  parts.chat_template_source = source;
  if (!files.generation_config.empty()) {
    parts.generation_config = ParseGenerationConfig(files.generation_config);
  }
  model::ConfigTokens tokens;
  if (!files.config.empty()) tokens = model::ParseConfigTokens(files.config);
  parts.end_tokens =
      EndTokens(parts.tokenizer, parts.generation_config.end_tokens, tokens, config.eos_token);
  parts.vocab = tokens.vocab > 0 ? tokens.vocab : parts.tokenizer.size();
  return ModelText(std::make_shared<const Parts>(std::move(parts)));
}

ModelText ModelText::WithChatTemplate(std::string_view source) const {
  Parts parts = *parts_;
  parts.chat_template.emplace(source);
  parts.chat_template_source = source;
  return ModelText(std::make_shared<const Parts>(std::move(parts)));
}

ModelText ModelText::WithParamDefaults(ParamDefaults defaults) const {
  Parts parts = *parts_;
  parts.generation_config.params = StartingParams(parts.generation_config, defaults);
  return ModelText(std::make_shared<const Parts>(std::move(parts)));
}

const Tokenizer& ModelText::tokenizer() const { return parts_->tokenizer; }
const GenerationConfig& ModelText::generation_config() const { return parts_->generation_config; }
std::span<const int32_t> ModelText::end_tokens() const { return parts_->end_tokens; }
int64_t ModelText::vocab() const { return parts_->vocab; }
bool ModelText::has_chat_template() const { return parts_->chat_template.has_value(); }
const std::string& ModelText::chat_template() const { return parts_->chat_template_source; }

std::string ModelText::RenderChat(std::span<const ChatMessage> messages) const {
  std::ostringstream variables;
  JsonWriter json(variables);
  json.Object([&] {
    json.Key("messages").Array([&] {
      for (const ChatMessage& message : messages) {
        json.Object([&] {
          json.Key("role").Value(message.role);
          json.Key("content").Value(message.content);
        });
      }
    });
    json.Key("add_generation_prompt").Value(true);
  });
  return RenderChatJson(variables.view());
}

std::string ModelText::RenderChatJson(std::string_view variables) const {
  return RenderChatText(variables).text;
}

ChatText ModelText::RenderChatText(std::string_view variables) const {
  if (!has_chat_template()) {
    throw Error(ErrorCode::kUnavailable, "chat", "a conversation",
                "a model with chat_template.jinja, or with chat_template in "
                "tokenizer_config.json");
  }
  // Before the caller's, which win: of a name that comes twice the last value counts.
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t open = std::min(variables.find_first_not_of(kSpace), variables.size());
  if (!variables.substr(open).starts_with('{')) return parts_->chat_template->RenderText(variables);
  const std::string_view members = variables.substr(open + 1);
  const size_t first = std::min(members.find_first_not_of(kSpace), members.size());
  std::string all;
  all.reserve(parts_->special_tokens.size() + members.size() + 2);
  all.append("{").append(parts_->special_tokens);
  if (!members.substr(first).starts_with('}')) all.append(",");
  const std::string own = "{" + parts_->special_tokens + "}";
  return parts_->chat_template->RenderText(all.append(members), own);
}

}  // namespace sluice
