#include "text/decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "support/check.h"
#include "text/byte_alphabet.h"
#include "text/normalize/replace.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

using Kind = DecoderStep::Kind;

constexpr size_t kMostTailBytes = size_t{16} << 20;  // of all unusual tails

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

void StripEnd(std::string& text, std::string_view character, int32_t count) {
  for (; count > 0 && text.ends_with(character); --count) {
    text.resize(text.size() - character.size());
  }
}

// How many bytes both begin with, in whole characters.
size_t CommonPrefix(std::string_view a, std::string_view b) {
  const auto [end, other] = std::ranges::mismatch(a, b);
  auto size = static_cast<size_t>(end - a.begin());
  while (size > 0 && ((size < a.size() && IsContinuation(static_cast<uint8_t>(a[size]))) ||
                      (size < b.size() && IsContinuation(static_cast<uint8_t>(b[size]))))) {
    --size;
  }
  return size;
}

[[noreturn]] void Refuse(std::string_view what, std::string_view allowed) {
  ThrowInvalid("decoder", std::string(what), std::string(allowed));
}

class Compiler {
 public:
  Compiler(const DecoderSteps& steps, const Spellings& spellings, const Spellings& surfaces,
           Vocabulary& vocabulary)
      : spellings_(spellings), surfaces_(surfaces), vocabulary_(vocabulary) {
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
      if (const auto surface = surfaces_.find(id); surface != surfaces_.end()) {
        vocabulary_.SetPiece(id, surface->second, kVerbatimToken);
        if (has_first_) vocabulary_.SetFirstPiece(id, surface->second);
        continue;
      }
      std::string_view token = vocabulary_.Token(id);
      if (!spellings_.empty()) {
        const auto other = spellings_.find(id);
        if (other != spellings_.end()) token = other->second;
      }
      // A look at the token ends where the arena grows.
      token_.assign(token);
      Tail tail;
      Tail first_tail;
      uint8_t flags = Decode(token_, false, bytes, tail);
      if (has_first_) {
        flags |= static_cast<uint8_t>(Decode(token_, true, first_, first_tail) & kWordEnd);
      }
      vocabulary_.SetPiece(id, bytes, flags);
      if (has_first_) vocabulary_.SetFirstPiece(id, first_);
      if (!(flags & kWordEnd)) continue;
      AddTail(DecodeRules::TailKey(id, false), tail);
      AddTail(DecodeRules::TailKey(id, true), has_first_ ? first_tail : tail);
    }
    vocabulary_.EndPieces();
    return rules_;
  }

 private:
  void CheckForToken(const DecoderStep& step) {
    switch (step.kind) {
      case Kind::kByteLevel:
        if (rules_.has_byte_runs) Refuse("ByteLevel after ByteFallback", "one of them");
        break;
      case Kind::kByteFallback:
        if (has_first_ || has_suffix_) {
          Refuse("ByteFallback after a step that depends on a token's place", "Replace before it");
        }
        rules_.has_byte_runs = true;
        break;
      case Kind::kStrip:
        if (rules_.has_byte_runs) Refuse("Strip after ByteFallback without Fuse", "a Fuse between");
        break;
      case Kind::kMetaspace:
      case Kind::kWordPiece:
      case Kind::kJoin:
        CheckNoByteRuns();
        has_first_ = true;
        break;
      case Kind::kReplace:
        if (rules_.has_byte_runs) Refuse("Replace after ByteFallback", "Replace before it");
        break;
      case Kind::kBpe:
        CheckNoByteRuns();
        has_suffix_ = true;
        break;
      case Kind::kFuse:
        break;
    }
  }

  // ByteFallback makes one token of a run of bytes: for the later steps, the tokens after it have
  // other places, and one of them is the first or the last.
  void CheckNoByteRuns() const {
    if (rules_.has_byte_runs) {
      Refuse("Metaspace, WordPiece or BPEDecoder after ByteFallback", "Fuse or Strip after it");
    }
  }

  void AddTail(int64_t key, const Tail& tail) {
    if (tail == rules_.tails.front()) return;
    tail_bytes_ += tail.followed.size() + tail.last.size();
    if (tail_bytes_ > kMostTailBytes) {
      Refuse("tokens with more than 16 MiB after a suffix inside them", "at most 16 MiB");
    }
    rules_.unusual_tails[key] = static_cast<uint32_t>(rules_.tails.size());
    rules_.tails.push_back(tail);
  }

  void AddForText(const DecoderStep& step) {
    if (step.kind == Kind::kFuse) return;
    if (step.kind != Kind::kStrip) {
      Refuse("a step after Fuse or ByteLevel that is neither Fuse nor Strip", "Fuse, Strip");
    }
    if (!rules_.stripped.empty()) Refuse("two steps Strip after Fuse", "at most one");
    CheckInRange("decoder.start", step.start, 0, 255);
    CheckInRange("decoder.stop", step.stop, 0, 255);
    rules_.stripped = step.pattern;
    rules_.leading = static_cast<uint8_t>(step.start);
    rules_.trailing = static_cast<uint8_t>(step.stop);
  }

  // The flags of the token's piece; what the token's place at the end of a text changes is in
  // `tail`, not in `bytes`.
  uint8_t Decode(std::string_view token, bool is_first, std::string& bytes, Tail& tail) {
    const uint8_t flags = DecodeAt(token, is_first, false, bytes);
    if (!has_suffix_) return flags;
    DecodeAt(token, is_first, true, last_);
    const size_t common = CommonPrefix(bytes, last_);
    tail = {bytes.substr(common), last_.substr(common)};
    bytes.resize(common);
    return tail == Tail{"", ""} ? flags : static_cast<uint8_t>(flags | kWordEnd);
  }

  uint8_t DecodeAt(std::string_view token, bool is_first, bool is_last, std::string& bytes) {
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
          StripEnd(bytes, step.pattern, step.stop);
          break;
        case Kind::kReplace:
          Replace(step, step.content, bytes);
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
          Replace(step, is_last ? "" : " ", bytes);
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

  static void Replace(const DecoderStep& step, std::string_view content, std::string& bytes) {
    if (step.regex != nullptr) {
      bytes = step.regex->ReplaceAll(bytes, content, kMaxTokenBytes);
    } else {
      ReplaceAll(bytes, step.pattern, content, kMaxTokenBytes);
    }
  }

  const Spellings& spellings_;
  const Spellings& surfaces_;
  Vocabulary& vocabulary_;
  std::string token_;
  std::string first_;
  std::string last_;
  DecoderSteps steps_;
  DecodeRules rules_;
  bool has_first_ = false;
  bool has_suffix_ = false;
  size_t tail_bytes_ = 0;
  std::string scratch_;
};

}  // namespace

DecodeRules CompileDecoder(const DecoderSteps& steps, const Spellings& spellings,
                           const Spellings& surfaces, Vocabulary& vocabulary) {
  return Compiler(steps, spellings, surfaces, vocabulary).Run();
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
