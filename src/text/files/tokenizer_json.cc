// tokenizer.json of Hugging Face tokenizers.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "text/byte_alphabet.h"
#include "text/files/json_steps.h"
#include "text/files/loaders.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_piece.h"

namespace sluice::text {
namespace {

// The tokens of the model, without the added ones.
struct ModelTokens {
  std::vector<std::pair<std::string_view, int32_t>> list;
  TokenMap ids;
};

std::string_view TypeOf(const JsonValue& model) {
  if (const JsonValue type = model["type"]; !type.IsNull()) return type.String();
  // Files of 2020 do not say.
  if (!model["merges"].IsNull()) return "BPE";
  return model["vocab"].IsArray() ? "Unigram" : "WordPiece";
}

ModelTokens ReadTokens(const JsonValue& vocab) {
  ModelTokens tokens;
  if (vocab.IsArray()) {  // pairs of a token and its score, in the order of ids
    vocab.ForEachElement([&](const JsonValue& pair) {
      bool is_first = true;
      pair.ForEachElement([&](const JsonValue& part) {
        if (std::exchange(is_first, false)) {
          tokens.list.emplace_back(part.String(), static_cast<int32_t>(tokens.list.size()));
        }
      });
      if (is_first) pair.Refuse("a token and its score");
    });
  } else {
    vocab.ForEachMember([&](std::string_view token, const JsonValue& id) {
      const int64_t value = id.Integer();
      CheckInRange("model.vocab.id", value, 0, kMaxTokens - 1);
      tokens.list.emplace_back(token, static_cast<int32_t>(value));
    });
  }
  tokens.ids = TokenMap(tokens.list.size());
  for (const auto& [token, id] : tokens.list) tokens.ids.Add(token, id);
  return tokens;
}

std::vector<AddedToken> ReadAddedTokens(const JsonValue& json, Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (json.IsNull()) return tokens;
  json.ForEachElement([&](const JsonValue& token) {
    AddedToken added;
    const int64_t id = token["id"].Integer();
    added.content = token["content"].String();
    added.is_special = token["special"].Bool(false);
    added.is_normalized = token["normalized"].Bool(!added.is_special);
    added.is_single_word = token["single_word"].Bool(false);
    added.strips_left = token["lstrip"].Bool(false);
    added.strips_right = token["rstrip"].Bool(false);
    vocabulary.Add("added_tokens", id, added.content,
                   static_cast<uint8_t>(kAddedToken | (added.is_special ? kSpecialToken : 0)));
    added.id = static_cast<int32_t>(id);
    tokens.push_back(std::move(added));
  });
  // A special one is found among tokens with one spelling.
  std::stable_sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.is_special && !b.is_special;
  });
  return tokens;
}

int32_t IdOf(const JsonValue& token, const TokenMap& ids) {
  if (token.IsNull()) return -1;
  const int32_t id = ids.Find(token.String());
  if (id < 0) token.Refuse("a token of the vocabulary");
  return id;
}

// The two tokens of a merge: ["a", "b"], or "a b".
std::pair<std::string_view, std::string_view> ReadMerge(const JsonValue& json) {
  constexpr std::string_view kAllowed = "two tokens with a space between them, or a list of two";
  std::pair<std::string_view, std::string_view> pair;
  if (json.IsString()) {
    const std::string_view text = json.String();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      json.Refuse(kAllowed);
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  size_t place = 0;
  json.ForEachElement([&](const JsonValue& part) {
    if (place < 2) (place == 0 ? pair.first : pair.second) = part.String();
    ++place;
  });
  if (place != 2) json.Refuse(kAllowed);
  return pair;
}

std::vector<BpeMerge> ReadMerges(const JsonValue& json, const TokenMap& ids, size_t prefix) {
  std::vector<BpeMerge> merges;
  std::string merged;
  json.ForEachElement([&](const JsonValue& merge) {
    const auto [left, right] = ReadMerge(merge);
    merged.assign(left).append(right.substr(std::min(prefix, right.size())));
    const BpeMerge made = {ids.Find(left), ids.Find(right), ids.Find(merged),
                           static_cast<uint32_t>(merges.size())};
    if (made.left < 0 || made.right < 0 || made.merged < 0) {
      merge.Refuse("tokens of the vocabulary that make a token of it");
    }
    merges.push_back(made);
  });
  return merges;
}

std::unique_ptr<const Model> ReadBpe(const JsonValue& json, const ModelTokens& tokens,
                                     bool is_byte_level, int32_t size) {
  if (const JsonValue dropout = json["dropout"]; !dropout.IsNull()) {
    if (dropout.Get<double>("a number") != 0.0) dropout.Refuse("null or 0: ids that stay the same");
  }
  BpeOptions options;
  options.is_byte_level = is_byte_level;
  options.has_byte_fallback = json["byte_fallback"].Bool(false);
  options.ignores_merges = json["ignore_merges"].Bool(false);
  options.fuses_unknown = json["fuse_unk"].Bool(false);
  options.unknown_id = IdOf(json["unk_token"], tokens.ids);
  options.prefix = json["continuing_subword_prefix"].String("");
  options.suffix = json["end_of_word_suffix"].String("");
  const auto merges = ReadMerges(json["merges"], tokens.ids, options.prefix.size());

  // The key of a piece: the bytes that a token stands for.
  std::string arena;
  std::vector<std::pair<std::string_view, int32_t>> keys;
  if (is_byte_level) {
    size_t total = 0;
    for (const auto& [token, id] : tokens.list) total += token.size();
    arena.reserve(total);  // so that views into it stay
    std::string bytes;
    for (const auto& [token, id] : tokens.list) {
      if (!FromByteAlphabet(token, bytes)) continue;
      arena.append(bytes);
      keys.emplace_back(std::string_view(arena).substr(arena.size() - bytes.size()), id);
    }
  } else {
    keys = tokens.list;
  }
  TokenMap ids(keys.size());
  for (const auto& [token, id] : keys) ids.Add(token, id);
  return std::make_unique<Bpe>(std::move(options), std::move(ids), merges, size);
}

std::unique_ptr<const Model> ReadWordPiece(const JsonValue& json, const ModelTokens& tokens) {
  WordPieceOptions options;
  options.unknown_id = IdOf(json["unk_token"], tokens.ids);
  options.max_characters = json["max_input_chars_per_word"].Integer(100);
  options.prefix = json["continuing_subword_prefix"].String("##");
  return std::make_unique<WordPiece>(std::move(options), tokens.list);
}

std::unique_ptr<const Model> ReadUnigram(const JsonValue& json, const ModelTokens& tokens) {
  std::vector<UnigramToken> made;
  double least = std::numeric_limits<double>::infinity();
  size_t i = 0;
  json["vocab"].ForEachElement([&](const JsonValue& pair) {
    size_t place = 0;
    double score = 0.0;
    pair.ForEachElement([&](const JsonValue& part) {
      if (place++ == 1) score = part.Get<double>("a number");
    });
    if (place != 2) pair.Refuse("a token and its score");
    least = std::min(least, score);
    made.push_back({tokens.list[i].first, tokens.list[i].second, score});
    ++i;
  });
  UnigramOptions options{.has_byte_fallback = json["byte_fallback"].Bool(false)};
  constexpr double kPenalty = 10.0;  // as SentencePiece has it
  options.unknown_score = least - kPenalty;
  const int64_t unknown = json["unk_id"].Integer(-1);
  if (unknown >= static_cast<int64_t>(made.size()) || unknown < -1) {
    json["unk_id"].Refuse("the place of a token in the vocabulary");
  }
  options.unknown_id = static_cast<int32_t>(unknown);
  return std::make_unique<Unigram>(options, made, ByteIds(tokens.ids));
}

// Whether the model gets bytes where the last step would give the characters that stand for them:
// its tokens are looked up by bytes then. An affix is no byte.
bool TakesBytes(const JsonValue& model, std::vector<PreTokenizerStep>& steps) {
  if (steps.empty() || !steps.back().maps_bytes) return false;
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model[affix].String("").empty()) return false;
  }
  steps.back().maps_bytes = false;
  return true;
}

EncoderParts ReadEncoder(const JsonValue& json, const ModelTokens& tokens, int32_t size,
                         std::vector<AddedToken> added_tokens) {
  EncoderParts parts;
  try {
    const JsonValue model = json["model"];
    parts.normalizer = ReadNormalizer(json["normalizer"]);
    parts.pre_tokenizer = ReadPreTokenizer(json["pre_tokenizer"]);
    const std::string_view type = TypeOf(model);
    if (type == "BPE") {
      parts.model = ReadBpe(model, tokens, TakesBytes(model, parts.pre_tokenizer), size);
    } else if (type == "WordPiece") {
      parts.model = ReadWordPiece(model, tokens);
    } else if (type == "Unigram") {
      parts.model = ReadUnigram(model, tokens);
    } else {
      ThrowInvalid("model.type", ToText(type),
                   "\"BPE\", \"Unigram\" or \"WordPiece\", to encode with");
    }
    Surroundings around = ReadPostProcessor(json["post_processor"]);
    parts.before = std::move(around.before);
    parts.after = std::move(around.after);
  } catch (const Error& error) {
    parts.refused_parameter = error.parameter();
    parts.refused_value = error.value();
    parts.refused_allowed = error.allowed();
  }
  parts.added_tokens = std::move(added_tokens);
  return parts;
}

}  // namespace

std::shared_ptr<const TokenizerImpl> LoadJson(std::string_view json,
                                              const TokenizerOptions& options) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    ThrowInvalid("tokenizer.json",
                 std::string("malformed (") + simdjson::error_message(error) + ")",
                 "one JSON object in UTF-8");
  }
  const JsonValue file(root, "");
  if (!file.IsObject()) ThrowInvalid("tokenizer.json", "no object", "one JSON object in UTF-8");
  const ModelTokens tokens = ReadTokens(file["model"]["vocab"]);
  size_t count = tokens.list.size();
  if (const JsonValue added = file["added_tokens"]; !added.IsNull()) {
    added.ForEachElement([&](const JsonValue&) { ++count; });
  }
  Vocabulary vocabulary(count);
  for (const auto& [token, id] : tokens.list) vocabulary.Add("model.vocab", id, token, 0);
  std::vector<AddedToken> added_tokens = ReadAddedTokens(file["added_tokens"], vocabulary);
  DecoderSteps decoder;
  switch (options.decoder) {
    case TokenDecoder::kAuto:
      decoder = ReadDecoder(file["decoder"]);
      break;
    case TokenDecoder::kByteLevel:
      decoder = ByteLevelDecoder();
      break;
    case TokenDecoder::kSentencePiece:
      decoder = SentencePieceDecoder(1);
      break;
  }
  EncoderParts encoder = ReadEncoder(file, tokens, vocabulary.size(), std::move(added_tokens));
  return std::make_shared<const TokenizerImpl>(std::move(vocabulary), decoder, std::move(encoder));
}

}  // namespace sluice::text
