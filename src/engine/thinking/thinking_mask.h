// The draws of a request with a thinking budget: reasoning that ends after a number of tokens, and
// then what the answer's grammar allows.
//
// It depends on the tokens alone that were drawn, so a preempted request goes on as it was. The
// answer's grammar begins with the token after the end of reasoning; a model that is to think first
// by itself may begin with the token that begins reasoning, where there is one, and else follows
// the grammar from the first token on.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/thinking/spelled_end.h"
#include "sluice/detokenizer.hpp"
#include "sluice/reasoning.hpp"
#include "sluice/step_runner.hpp"

namespace sluice::engine {

struct ThinkingMaskOptions {
  ThinkingBudget budget = {};
  std::shared_ptr<const SpelledEnd> end = {};
  DetokenizerOptions detokenizer = {};
  std::span<const int32_t> prompt = {};
  // Of the answer; null: it may be anything. It outlives the mask. Then the stop tokens do not end
  // the reasoning, and these are tokens of the mask:
  DrawMask* answer = nullptr;
  std::span<const int32_t> stop_tokens = {};
  int64_t vocab = 0;
};

class ThinkingMask final : public DrawMask {
 public:
  ThinkingMask(const Tokenizer& tokenizer, const ThinkingMaskOptions& options);

  std::span<const int32_t> Await() override;
  int32_t forced() const override { return forced_.empty() ? -1 : forced_.front(); }
  int64_t open_draws() const override;
  int64_t AwaitDrafts(std::span<const int32_t> drafts, std::span<int32_t> words) override;
  void Drew(int32_t token) override;
  void Flush() override;
  bool makes_masks() const override { return answer_ != nullptr; }

 private:
  using Part = ReasoningPlace::Part;

  void Take(int32_t token);
  void EndWhereDue();
  std::span<const int32_t> BeforeReasoning();
  std::span<const int32_t> InReasoning();

  int64_t left_;  // tokens of reasoning
  std::shared_ptr<const SpelledEnd> end_;
  DrawMask* answer_;
  ReasoningPlace place_;
  Detokenizer detokenizer_;
  std::string text_;                      // of a token
  std::span<const int32_t> forced_ = {};  // of the end, those that are left
  std::vector<int32_t> thinking_words_;   // with an answer's mask: all tokens but its stop tokens
  std::vector<int32_t> words_;
};

}  // namespace sluice::engine
