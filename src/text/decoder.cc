#include "text/decoder.h"

#include <array>
#include <utility>

#include "support/check.h"
#include "text/byte_alphabet.h"
#include "text/replace.h"

namespace sluice::text {
namespace {

using Kind = DecoderStep::Kind;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

void CleanUp(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements = {
      {{" .", "."},
       {" ?", "?"},
       {" !", "!"},
       {" ,", ","},
       {" ' ", "'"},
       {" n't", "n't"},
       {" 'm", "'m"},
       {" do not", " don't"},
       {" 's", "'s"},
       {" 've", "'ve"},
       {" 're", "'re"}}};
  for (const auto& [from, to] : kReplacements) ReplaceAll(text, from, to);
}

// The byte of <0xHH>, or -1.
int ByteOf(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (size_t i = 3; i < 5; ++i) {
    const char c = token[i];
    const char lower = static_cast<char>(c | 0x20);
    if (c == '+' && i == 3) continue;  // as the parser of numbers has it that defined this
    if (c >= '0' && c <= '9') {
      value = value * 16 + (c - '0');
    } else if (lower >= 'a' && lower <= 'f') {
      value = value * 16 + (lower - 'a' + 10);
    } else {
      return -1;
    }
  }
  return value;
}

void StripStart(std::string& text, std::string_view character, int32_t count) {
  size_t cut = 0;
  for (; count > 0 && text.compare(cut, character.size(), character) == 0; --count) {
    cut += character.size();
  }
  text.erase(0, cut);
}

[[noreturn]] void Refuse(std::string_view what, std::string_view allowed) {
  ThrowInvalid("decoder", std::string(what), std::string(allowed));
}

class Compiler {
 public:
  Compiler(const DecoderSteps& steps, const Spellings& spellings, Vocabulary& vocabulary)
      : spellings_(spellings), vocabulary_(vocabulary) {
    bool is_fused = false;
    for (const DecoderStep& step : steps) {
      if (is_fused) {
        AddForText(step);
        continue;
      }
      CheckForToken(step);
      if (step.kind == Kind::kFuse) {
        is_fused = true;
      } else {
        steps_.push_back(step);
      }
      // Its result is one string.
      if (step.kind == Kind::kByteLevel) is_fused = true;
    }
  }

  DecodeRules Run() {
    vocabulary_.BeginPieces(has_first_);
    std::string bytes;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      if (!vocabulary_.IsKnown(id)) continue;
      std::string_view token = vocabulary_.Token(id);
      if (!spellings_.empty()) {
        const auto other = spellings_.find(id);
        if (other != spellings_.end()) token = other->second;
      }
      // A look at the token ends where the arena grows.
      token_.assign(token);
      const uint8_t flags = Decode(token_, false, bytes);
      vocabulary_.SetPiece(id, bytes, flags);
      if (!has_first_) continue;
      Decode(token_, true, bytes);
      vocabulary_.SetFirstPiece(id, bytes);
    }
    vocabulary_.EndPieces();
    return rules_;
  }

 private:
  void CheckForToken(const DecoderStep& step) {
    switch (step.kind) {
      case Kind::kByteLevel:
        if (rules_.has_byte_runs) Refuse("ByteLevel behind ByteFallback", "one of them");
        break;
      case Kind::kByteFallback:
        if (has_first_ || has_suffix_) {
          Refuse("ByteFallback behind a step that knows a token's place", "Replace in front of it");
        }
        rules_.has_byte_runs = true;
        break;
      case Kind::kStrip:
        if (step.stop > 0) Refuse("Strip with stop > 0 without Fuse", "Strip behind Fuse");
        if (rules_.has_byte_runs)
          Refuse("Strip behind ByteFallback without Fuse", "a Fuse between");
        CheckNoSuffix();
        break;
      case Kind::kMetaspace:
      case Kind::kWordPiece:
      case Kind::kJoin:
        CheckNoByteRuns();
        if (step.kind == Kind::kWordPiece) CheckNoSuffix();
        has_first_ = true;
        break;
      case Kind::kReplace:
        CheckNoSuffix();
        if (rules_.has_byte_runs) Refuse("Replace behind ByteFallback", "Replace in front of it");
        break;
      case Kind::kBpe:
        CheckNoByteRuns();
        has_suffix_ = true;
        break;
      case Kind::kFuse:
        break;
    }
  }

  // ByteFallback makes one token of a run of bytes: to what follows, the tokens behind it have
  // other places, and one of them is the first or the last.
  void CheckNoByteRuns() const {
    if (rules_.has_byte_runs) {
      Refuse("Metaspace, WordPiece or BPEDecoder behind ByteFallback", "Fuse or Strip behind it");
    }
  }

  // The space that BPEDecoder puts behind a word is no part of a piece, and these would see it.
  void CheckNoSuffix() const {
    if (has_suffix_) Refuse("Replace, Strip or WordPiece behind BPEDecoder", "them in front of it");
  }

  void AddForText(const DecoderStep& step) {
    if (step.kind == Kind::kFuse) return;
    if (step.kind != Kind::kStrip) {
      Refuse("a step behind Fuse or ByteLevel that is neither Fuse nor Strip", "Fuse, Strip");
    }
    if (!rules_.stripped.empty()) Refuse("two steps Strip behind Fuse", "at most one");
    CheckInRange("decoder.start", step.start, 0, 255);
    CheckInRange("decoder.stop", step.stop, 0, 255);
    rules_.stripped = step.pattern;
    rules_.leading = static_cast<uint8_t>(step.start);
    rules_.trailing = static_cast<uint8_t>(step.stop);
  }

  // The flags of the token's piece.
  uint8_t Decode(std::string_view token, bool is_first, std::string& bytes) {
    bytes.assign(token);
    uint8_t flags = 0;
    for (const DecoderStep& step : steps_) {
      switch (step.kind) {
        case Kind::kByteLevel:
          if (FromByteAlphabet(bytes, scratch_)) bytes.swap(scratch_);
          break;
        case Kind::kByteFallback:
          if (const int byte = ByteOf(bytes); byte >= 0) {
            bytes.assign(1, static_cast<char>(byte));
            flags |= kByteToken;
          }
          break;
        case Kind::kStrip:
          StripStart(bytes, step.pattern, step.start);
          break;
        case Kind::kReplace:
          if (step.regex != nullptr) {
            bytes = step.regex->ReplaceAll(bytes, step.content, kMaxTokenBytes);
          } else {
            ReplaceAll(bytes, step.pattern, step.content, kMaxTokenBytes);
          }
          break;
        case Kind::kMetaspace:
          ReplaceAll(bytes, step.pattern, is_first && step.is_on ? "" : " ");
          break;
        case Kind::kWordPiece:
          if (!is_first) {
            if (bytes.starts_with(step.pattern)) {
              bytes.erase(0, step.pattern.size());
            } else {
              bytes.insert(bytes.begin(), ' ');
            }
          }
          if (step.is_on) CleanUp(bytes);
          break;
        case Kind::kJoin:
          if (!is_first) bytes.insert(bytes.begin(), ' ');
          break;
        case Kind::kBpe:
          if (bytes.ends_with(step.pattern)) {
            bytes.erase(bytes.size() - step.pattern.size());
            flags |= kWordEnd;
          }
          if (bytes.find(step.pattern) != std::string::npos) {
            Refuse("a token with " + ToText(step.pattern) + " before its end", "it at the end");
          }
          break;
        case Kind::kFuse:
          break;
      }
      if (bytes.size() > kMaxTokenBytes) {
        Refuse("a token that grows to more than " + std::to_string(kMaxTokenBytes) + " bytes",
               "at most " + std::to_string(kMaxTokenBytes));
      }
    }
    return flags;
  }

  const Spellings& spellings_;
  Vocabulary& vocabulary_;
  std::string token_;
  DecoderSteps steps_;
  DecodeRules rules_;
  bool has_first_ = false;
  bool has_suffix_ = false;
  std::string scratch_;
};

}  // namespace

DecodeRules CompileDecoder(const DecoderSteps& steps, const Spellings& spellings,
                           Vocabulary& vocabulary) {
  return Compiler(steps, spellings, vocabulary).Run();
}

DecoderSteps ByteLevelDecoder() { return {{.kind = Kind::kByteLevel}}; }

DecoderSteps SentencePieceDecoder(int32_t dropped_spaces) {
  DecoderSteps steps = {
      {.kind = Kind::kReplace, .pattern = std::string(kSpaceMark), .content = " "},
      {.kind = Kind::kByteFallback},
      {.kind = Kind::kFuse}};
  if (dropped_spaces > 0) {
    steps.push_back({.kind = Kind::kStrip, .pattern = " ", .start = dropped_spaces});
  }
  return steps;
}

}  // namespace sluice::text
