// *.tiktoken: lines of a token in base64 and its rank, which is its id.
#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "support/check.h"
#include "text/files/base64.h"
#include "text/files/loaders.h"
#include "text/tokenizer/rank_merges.h"

namespace sluice::text {
namespace {

void ReadLine(std::string_view line, size_t number, std::string& bytes, Vocabulary& vocabulary) {
  const size_t space = line.find(' ');
  int64_t rank = -1;
  bool is_good = space != std::string_view::npos && FromBase64(line.substr(0, space), bytes);
  if (is_good) {
    const char* last = line.data() + line.size();
    const auto [end, error] = std::from_chars(line.data() + space + 1, last, rank);
    is_good = error == std::errc() && end == last;
  }
  if (!is_good) {
    constexpr size_t kLongest = 40;
    const bool is_text = IsUtf8(line.substr(0, kLongest));
    ThrowInvalid("tiktoken, line " + std::to_string(number),
                 is_text ? ToText(line.substr(0, kLongest)) : "bytes that are not UTF-8",
                 "a token in base64, a space and its rank");
  }
  vocabulary.Add("tiktoken", rank, bytes, 0);
}

}  // namespace

std::shared_ptr<const TokenizerImpl> LoadTiktoken(std::string_view ranks,
                                                  const TiktokenOptions& options) {
  const auto lines = static_cast<size_t>(std::count(ranks.begin(), ranks.end(), '\n')) + 1;
  Vocabulary vocabulary(lines + options.special_tokens.size());
  std::string bytes;
  for (size_t number = 1; !ranks.empty(); ++number) {
    const size_t size = ranks.find('\n');
    std::string_view line = ranks.substr(0, size);
    ranks.remove_prefix(size == std::string_view::npos ? ranks.size() : size + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) ReadLine(line, number, bytes, vocabulary);
  }

  EncoderParts parts;
  if (options.pattern.empty()) {
    parts.refused_parameter = "pattern";
    parts.refused_value = "";
    parts.refused_allowed = "the model's pattern, to encode with";
  } else {
    std::vector<std::pair<std::string_view, int32_t>> tokens;
    for (int32_t id = 0; id < vocabulary.size(); ++id) {
      // A rank without a token keeps its place.
      tokens.emplace_back(vocabulary.IsKnown(id) ? vocabulary.Token(id) : std::string_view(), id);
    }
    TokenMap ids(tokens.size());
    for (const auto& [token, id] : tokens) {
      if (!token.empty()) ids.Add(token, id);
    }
    const std::vector<BpeMerge> merges = MergesOf(tokens, ids, false);
    parts.pre_tokenizer.push_back(
        {.kind = PreTokenizerStep::Kind::kRegex,
         .regex = std::make_shared<const Regex>("pattern", options.pattern, RegexDialect::kRust)});
    parts.model =
        std::make_unique<const Bpe>(BpeOptions{.is_byte_level = true, .ignores_merges = true},
                                    std::move(ids), merges, vocabulary.size());
  }
  for (const SpecialToken& token : options.special_tokens) {
    if (token.text.empty() || !IsUtf8(token.text)) {
      ThrowInvalid("special_tokens.text",
                   token.text.empty()
                       ? "empty"
                       : "bytes that are not UTF-8, of the id " + ToText(int64_t{token.id}),
                   "text in UTF-8");
    }
    vocabulary.Add("special_tokens", token.id, token.text, kAddedToken | kSpecialToken);
    parts.added_tokens.push_back({.content = std::string(token.text),
                                  .id = token.id,
                                  .is_special = true,
                                  .is_normalized = false});
  }
  return std::make_shared<const TokenizerImpl>(std::move(vocabulary), DecoderSteps(),
                                               std::move(parts));
}

}  // namespace sluice::text
