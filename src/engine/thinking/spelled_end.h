// How a vocabulary spells the text that ends reasoning.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/reasoning.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice::engine {

class SpelledEnd {
 public:
  // Throws Error for a format without such a text, or where no tokens give it.
  SpelledEnd(ReasoningFormat format, const Tokenizer& tokenizer);

  // The tokens to draw after reasoning that ends with the first `matched` bytes of its text. Where
  // none give the rest alone, and where the whole is one token, those of the whole.
  std::span<const int32_t> After(size_t matched) const { return rests_[matched]; }

  // The tokens that end reasoning, after `matched` bytes of its end, and begin the answer with more
  // than white space, which a grammar could not follow.
  std::span<const int32_t> Beyond(size_t matched) const { return beyond_[matched]; }

 private:
  std::vector<std::vector<int32_t>> rests_;  // by matched bytes
  std::vector<std::vector<int32_t>> beyond_;
};

// Those of one tokenizer, made at their first use. Any thread's.
class SpelledEnds {
 public:
  std::shared_ptr<const SpelledEnd> Get(ReasoningFormat format, const Tokenizer& tokenizer);

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<const SpelledEnd>> ends_;  // by format
};

}  // namespace sluice::engine
