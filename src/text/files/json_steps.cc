#include "text/files/json_steps.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "text/files/base64.h"
#include "text/normalize/utf8.h"
#include "text/regex/regex_patterns.h"

namespace sluice::text {
namespace {

constexpr int kDeepest = 16;  // of sequences in sequences

// A file's steps are gone through for every text, those of a decoder for every token: their number
// must not be what makes that slow. Files have up to thirty.
constexpr size_t kMostNormalizers = 128;
constexpr size_t kMostPreTokenizers = 32;
constexpr size_t kMostByteLevels = 4;  // each may double the text
constexpr size_t kMostDecoders = 16;
constexpr size_t kMostSurroundings = 1024;  // ids around a text

void CheckCount(const JsonValue& json, size_t count, size_t most, std::string_view what) {
  if (count > most) {
    ThrowInvalid(json.path(), std::to_string(count) + std::string(what),
                 "at most " + std::to_string(most));
  }
}

// use(type, json) for the object, or for each of those that its list `key` has when it is a
// Sequence.
template <typename Use>
void ForEachStep(const JsonValue& json, std::string_view key, const Use& use, int depth = 0) {
  if (json.IsNull()) return;
  const std::string_view type = json["type"].String();
  if (type != "Sequence") return use(type, json);
  if (depth == kDeepest) json.Refuse("a shallower sequence");
  json[key].ForEachElement([&](const JsonValue& step) { ForEachStep(step, key, use, depth + 1); });
}

std::shared_ptr<const Regex> MakeRegex(const JsonValue& json, std::string_view pattern,
                                       RegexDialect dialect = RegexDialect::kOniguruma) {
  return std::make_shared<const Regex>(json.path(), pattern, dialect);
}

// {"String": text} or {"Regex": pattern}.
template <typename Step>
void ReadPattern(const JsonValue& json, Step* step) {
  if (!json["String"].IsNull()) {
    step->pattern = json["String"].String();
    // Nothing is between all characters.
    if (step->pattern.empty()) step->regex = MakeRegex(json, "");
  } else {
    step->regex = MakeRegex(json, json["Regex"].String());
  }
}

std::string Character(const JsonValue& json, std::string_view otherwise = {}) {
  const std::string_view text = otherwise.empty() ? json.String() : json.String(otherwise);
  if (text.empty() || FirstOf(text).size != text.size()) json.Refuse("one character");
  return std::string(text);
}

PrependScheme ReadScheme(const JsonValue& json) {
  const JsonValue scheme = json["prepend_scheme"];
  if (scheme.IsNull()) {
    return json["add_prefix_space"].Bool(true) ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  const std::string_view name = scheme.String();
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  scheme.Refuse("\"always\", \"first\" or \"never\"");
}

SplitBehavior ReadBehavior(const JsonValue& json) {
  const std::string_view name = json.String();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  json.Refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

int32_t Small(const JsonValue& json) {
  const int64_t value = json.Integer();
  if (value < 0 || value > INT32_MAX) json.Refuse("a number of characters");
  return static_cast<int32_t>(value);
}

}  // namespace

DecoderSteps ReadDecoder(const JsonValue& json) {
  using Kind = DecoderStep::Kind;
  DecoderSteps steps;
  if (json.IsNull()) return {{.kind = Kind::kJoin}};
  ForEachStep(json, "decoders", [&](std::string_view type, const JsonValue& step) {
    if (type == "ByteLevel") {
      steps.push_back({.kind = Kind::kByteLevel});
    } else if (type == "ByteFallback") {
      steps.push_back({.kind = Kind::kByteFallback});
    } else if (type == "Fuse") {
      steps.push_back({.kind = Kind::kFuse});
    } else if (type == "Strip") {
      steps.push_back({.kind = Kind::kStrip,
                       .pattern = Character(step["content"]),
                       .start = Small(step["start"]),
                       .stop = Small(step["stop"])});
    } else if (type == "Replace") {
      DecoderStep replace{.kind = Kind::kReplace, .content = std::string(step["content"].String())};
      ReadPattern(step["pattern"], &replace);
      steps.push_back(std::move(replace));
    } else if (type == "Metaspace") {
      steps.push_back({.kind = Kind::kMetaspace,
                       .pattern = Character(step["replacement"]),
                       .is_on = ReadScheme(step) != PrependScheme::kNever});
    } else if (type == "WordPiece") {
      steps.push_back({.kind = Kind::kWordPiece,
                       .pattern = std::string(step["prefix"].String("##")),
                       .is_on = step["cleanup"].Bool(true)});
    } else if (type == "BPEDecoder") {
      const std::string_view suffix = step["suffix"].String("</w>");
      DecoderStep bpe{.kind = Kind::kBpe, .pattern = std::string(suffix)};
      // Nothing is between all characters.
      if (suffix.empty()) bpe.regex = MakeRegex(step, "");
      steps.push_back(std::move(bpe));
    } else {
      step["type"].Refuse(
          "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece, BPEDecoder or "
          "Sequence");
    }
    CheckCount(json, steps.size(), kMostDecoders, " steps");
  });
  return steps;
}

std::vector<NormalizerStep> ReadNormalizer(const JsonValue& json) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  ForEachStep(json, "normalizers", [&](std::string_view type, const JsonValue& step) {
    if (type == "NFC") {
      steps.push_back({.kind = Kind::kNfc});
    } else if (type == "NFD") {
      steps.push_back({.kind = Kind::kNfd});
    } else if (type == "NFKC") {
      steps.push_back({.kind = Kind::kNfkc});
    } else if (type == "NFKD") {
      steps.push_back({.kind = Kind::kNfkd});
    } else if (type == "Lowercase") {
      steps.push_back({.kind = Kind::kLowercase});
    } else if (type == "ByteLevel") {
      steps.push_back({.kind = Kind::kByteLevel});
    } else if (type == "StripAccents") {
      steps.push_back({.kind = Kind::kStripAccents});
    } else if (type == "Strip") {
      steps.push_back({.kind = Kind::kStrip,
                       .strip_left = step["strip_left"].Bool(true),
                       .strip_right = step["strip_right"].Bool(true)});
    } else if (type == "Prepend") {
      steps.push_back({.kind = Kind::kPrepend, .content = std::string(step["prepend"].String())});
    } else if (type == "Replace") {
      NormalizerStep replace{.kind = Kind::kReplace,
                             .content = std::string(step["content"].String())};
      ReadPattern(step["pattern"], &replace);
      steps.push_back(std::move(replace));
    } else if (type == "Precompiled") {
      const JsonValue map = step["precompiled_charsmap"];
      std::string blob;
      if (!FromBase64(map.String(), blob)) map.Refuse("base64");
      steps.push_back({.kind = Kind::kCharsmap,
                       .charsmap = std::make_shared<const Charsmap>(map.path(), blob),
                       .by_clusters = true});
    } else if (type == "BertNormalizer") {
      const bool lowercase = step["lowercase"].Bool(true);
      steps.push_back({.kind = Kind::kBert,
                       .clean_text = step["clean_text"].Bool(true),
                       .spaces_chinese = step["handle_chinese_chars"].Bool(true),
                       .strip_accents = step["strip_accents"].Bool(lowercase),
                       .lowercase = lowercase});
    } else {
      step["type"].Refuse(
          "NFC, NFD, NFKC, NFKD, Lowercase, ByteLevel, StripAccents, Strip, Prepend, Replace, "
          "Precompiled, BertNormalizer or Sequence");
    }
    CheckCount(json, steps.size(), kMostNormalizers, " steps");
  });
  return steps;
}

std::vector<PreTokenizerStep> ReadPreTokenizer(const JsonValue& json) {
  using Kind = PreTokenizerStep::Kind;
  std::vector<PreTokenizerStep> steps;
  size_t byte_levels = 0;
  ForEachStep(json, "pretokenizers", [&](std::string_view type, const JsonValue& step) {
    if (type == "ByteLevel") {
      CheckCount(json, ++byte_levels, kMostByteLevels, " steps ByteLevel");
      const bool prepends = step["add_prefix_space"].Bool(true);
      PreTokenizerStep cut{.kind = Kind::kByteLevel,
                           .prepend = prepends ? PrependScheme::kAlways : PrependScheme::kNever,
                           .maps_bytes = true};
      if (step["use_regex"].Bool(true)) {
        cut.kind = Kind::kRegex;
        cut.regex = MakeRegex(step, kGpt2Pattern);
      }
      steps.push_back(std::move(cut));
    } else if (type == "Split") {
      PreTokenizerStep cut{.kind = Kind::kText,
                           .behavior = ReadBehavior(step["behavior"]),
                           .is_inverted = step["invert"].Bool(false)};
      ReadPattern(step["pattern"], &cut);
      if (cut.regex != nullptr) cut.kind = Kind::kRegex;
      steps.push_back(std::move(cut));
    } else if (type == "Metaspace") {
      steps.push_back({.kind = Kind::kMetaspace,
                       .pattern = Character(step["replacement"]),
                       .behavior = SplitBehavior::kMergedWithNext,
                       .splits = step["split"].Bool(true),
                       .prepend = ReadScheme(step)});
    } else if (type == "Digits") {
      const bool one_by_one = step["individual_digits"].Bool(false);
      steps.push_back(
          {.kind = Kind::kDigits,
           .behavior = one_by_one ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
    } else if (type == "Punctuation") {
      const JsonValue behavior = step["behavior"];
      steps.push_back(
          {.kind = Kind::kPunctuation,
           .behavior = behavior.IsNull() ? SplitBehavior::kIsolated : ReadBehavior(behavior)});
    } else if (type == "Whitespace") {
      steps.push_back({.kind = Kind::kRegex,
                       .regex = MakeRegex(step, R"(\w+|[^\w\s]+)", RegexDialect::kRust),
                       .behavior = SplitBehavior::kRemoved,
                       .is_inverted = true});
    } else if (type == "WhitespaceSplit") {
      steps.push_back({.kind = Kind::kSpaces, .behavior = SplitBehavior::kRemoved});
    } else if (type == "BertPreTokenizer") {
      steps.push_back({.kind = Kind::kSpaces, .behavior = SplitBehavior::kRemoved});
      steps.push_back({.kind = Kind::kPunctuation, .behavior = SplitBehavior::kIsolated});
    } else if (type == "CharDelimiterSplit") {
      steps.push_back({.kind = Kind::kText,
                       .pattern = Character(step["delimiter"]),
                       .behavior = SplitBehavior::kRemoved});
    } else {
      step["type"].Refuse(
          "ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, "
          "BertPreTokenizer, CharDelimiterSplit or Sequence");
    }
    CheckCount(json, steps.size(), kMostPreTokenizers, " steps");
  });
  return steps;
}

Surroundings ReadPostProcessor(const JsonValue& json) {
  Surroundings made;
  ForEachStep(json, "processors", [&](std::string_view type, const JsonValue& step) {
    if (type == "ByteLevel") return;  // it moves offsets only
    Surroundings around;
    if (type == "TemplateProcessing") {
      bool is_behind = false;
      std::vector<std::pair<std::string_view, JsonValue>> special;
      step["special_tokens"].ForEachMember([&](std::string_view name, const JsonValue& token) {
        special.emplace_back(name, token);
      });
      std::stable_sort(special.begin(), special.end(),
                       [](const auto& a, const auto& b) { return a.first < b.first; });
      step["single"].ForEachElement([&](const JsonValue& part) {
        if (!part["Sequence"].IsNull()) {
          if (is_behind || part["Sequence"]["id"].String() != "A") part.Refuse("one sequence, A");
          is_behind = true;
          return;
        }
        const JsonValue name = part["SpecialToken"]["id"];
        const auto found = std::lower_bound(
            special.begin(), special.end(), name.String(),
            [](const auto& token, std::string_view of) { return token.first < of; });
        if (found == special.end() || found->first != name.String()) {
          name.Refuse("one of the special_tokens");
        }
        found->second["ids"].ForEachElement([&](const JsonValue& id) {
          (is_behind ? around.after : around.before).push_back(Small(id));
          CheckCount(step, around.before.size() + around.after.size(), kMostSurroundings, " ids");
        });
      });
    } else if (type == "BertProcessing" || type == "RobertaProcessing") {
      const auto id_of = [](const JsonValue& pair) {
        int32_t id = -1;
        size_t place = 0;
        pair.ForEachElement([&](const JsonValue& part) {
          if (place++ == 1) id = Small(part);
        });
        if (place != 2) pair.Refuse("a token and its id");
        return id;
      };
      around = {{id_of(step["cls"])}, {id_of(step["sep"])}};
    } else {
      step["type"].Refuse(
          "ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing or Sequence");
    }
    // Each one is put around what the last has made.
    made.before.insert(made.before.begin(), around.before.begin(), around.before.end());
    made.after.insert(made.after.end(), around.after.begin(), around.after.end());
    CheckCount(json, made.before.size() + made.after.size(), kMostSurroundings, " ids");
  });
  return made;
}

}  // namespace sluice::text
