// The masks of a Generator's choice, each filled when it draws.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/grammar.hpp"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

class ChoiceMask final : public DrawMask {
 public:
  explicit ChoiceMask(const Grammar& grammar)
      : matcher_(grammar), words_((static_cast<size_t>(grammar.vocab()) + 31) / 32) {}

  std::span<const int32_t> Await() override {
    if (matcher_.IsTerminated()) return {};
    if (is_wrong_) {
      std::fill(words_.begin(), words_.end(), 0);
    } else if (matcher_.FillMask(words_) == MaskState::kEverything) {
      return {};
    }
    return words_;
  }
  void Drew(int32_t token) override {
    if (!matcher_.IsTerminated()) is_wrong_ = is_wrong_ || !matcher_.Accept(token);
  }

 private:
  GrammarMatcher matcher_;
  std::vector<int32_t> words_;
  bool is_wrong_ = false;  // a token came that the grammar does not allow
};

}  // namespace sluice::engine
