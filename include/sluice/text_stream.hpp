// One request's way from token ids to the text that its client reads: detokeniser, stop strings,
// stop tokens, and which tokens' text is out.
//
// A step costs what its tokens' bytes do, and takes memory only when `text` has no room left. What
// comes out depends on the tokens alone, not on how they are cut into steps.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sluice/detokenizer.hpp"
#include "sluice/reasoning.hpp"
#include "sluice/stop.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

namespace text {
// The conditions of a token for the quick step: a mask of its fields.
class PieceFilter {
 public:
  // Plain tokens of a few bytes, none of which is of these kinds.
  explicit PieceFilter(uint8_t kinds = 0);
  bool Passes(const TokenEntry& piece) const;

 private:
  uint64_t fields_;
};
}  // namespace text

struct TextStreamOptions {
  DetokenizerOptions detokenizer = {};
  std::shared_ptr<const StopList> stops = {};  // null: none
  StopOptions stop = {};
  // A token of these ends the stream, unless it is one of the first min_tokens: its text is shown
  // with include_stop alone, and what was held back comes out. So does a token with the text of a
  // stop string, which may be skipped, so that no scanner sees it.
  std::vector<int32_t> stop_token_ids = {};
  Incomplete incomplete = Incomplete::kReplace;
  // Stop strings count in the answer that follows the reasoning, and not in this.
  std::optional<ThinkingBudget> thinking = {};
};

enum class FinishReason : uint8_t {
  kNone,        // it goes on
  kStopString,  // `stop` says which
  kStopToken,   // `stop_token` says which
  kEnd,         // Finish was called, for a reason of the caller's
};

// The output of a step, apart from its text.
struct Delta {
  // The tokens that have all of their text out with this delta, as a range of numbers from 0. The
  // outputs of a token (a log-probability, say) go out with it.
  int64_t first_token = 0;
  int64_t last_token = 0;  // one past the last
  int64_t tokens = 0;      // so far, up to and with the one that ended the stream
  FinishReason finish = FinishReason::kNone;
  int32_t stop = -1;  // its place in the list
  int32_t stop_token = -1;
};

class TextStream {
 public:
  explicit TextStream(Tokenizer tokenizer, const TextStreamOptions& options = {},
                      std::span<const int32_t> prompt = {});

  // Appends the text that these tokens release. After the end of the stream nothing comes out, and
  // the delta repeats why it ended.
  const Delta& Step(std::span<const int32_t> ids, std::string& text);

  // For a stream that ends for another reason: appends what was held back. A stop string may still
  // end in it.
  const Delta& Finish(std::string& text);

  size_t held_bytes() const { return scanner_.held_bytes(); }
  int64_t unknown_ids() const { return detokenizer_.unknown_ids(); }
  int64_t invalid_bytes() const { return detokenizer_.invalid_bytes(); }
  const StopList& stops() const { return scanner_.stops(); }

 private:
  [[gnu::noinline]] const Delta& StepAny(std::span<const int32_t> ids, std::string& text);
  bool StepWithin(int32_t id, std::string& text);
  void PassOn(const text::TokenEntry& piece, std::string& text);
  uint32_t QuickSize() const;
  void UpdateQuickSize();
  void StepThrough(std::span<const int32_t> ids, std::string& text);
  bool IsInAnswer() const;
  void StepToAnswer(std::span<const int32_t> ids, std::string& text);
  void AddReasoning(int32_t id, std::string& text);
  size_t CountBeforeStopToken(std::span<const int32_t> ids) const;
  void Add(std::span<const int32_t> ids, std::string& text);
  void AddHidden(std::string& text);
  void Take(const StopResult& result);
  void End(FinishReason reason, std::string& text);

  Detokenizer detokenizer_;
  StopScanner scanner_;
  bool include_stop_ = false;
  Incomplete incomplete_ = Incomplete::kReplace;
  int64_t min_tokens_ = 0;
  std::vector<int32_t> stop_token_ids_;   // ascending
  std::vector<int32_t> given_stop_ids_;   // of these, those that no stop string spells
  std::optional<ReasoningPlace> place_;   // none: all of it is the answer
  uint32_t stop_free_size_ = UINT32_MAX;  // no id below it is among these
  uint32_t quick_size_ = 0;               // while nothing is held back, QuickSize()
  text::PieceFilter quick_filter_;        // of tokens that have no byte that a stop begins with
  Delta delta_;
};

}  // namespace sluice
