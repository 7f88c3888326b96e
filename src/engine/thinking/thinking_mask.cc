#include "engine/thinking/thinking_mask.h"

#include <algorithm>
#include <limits>

namespace sluice::engine {
namespace {

void Clear(std::span<int32_t> words, int32_t id) {
  const auto word = static_cast<size_t>(id) / 32;
  if (word < words.size()) words[word] &= ~static_cast<int32_t>(uint32_t{1} << (id % 32));
}

}  // namespace

ThinkingMask::ThinkingMask(const Tokenizer& tokenizer, const ThinkingMaskOptions& options)
    : left_(options.budget.tokens),
      end_(options.end),
      answer_(options.answer),
      place_(options.budget.format, tokenizer, options.budget.is_open),
      detokenizer_(tokenizer, options.detokenizer, options.prompt) {
  if (answer_ != nullptr) {
    thinking_words_.assign((static_cast<size_t>(options.vocab) + 31) / 32, -1);
    for (const int32_t id : options.stop_tokens) Clear(thinking_words_, id);
    words_.resize(thinking_words_.size());
  }
  EndWhereDue();
}

std::span<const int32_t> ThinkingMask::Await() {
  if (!forced_.empty()) return {};
  switch (place_.part()) {
    case Part::kBefore:
      return BeforeReasoning();
    case Part::kReasoning:
      return InReasoning();
    case Part::kAnswer:
      break;
  }
  return answer_ != nullptr ? answer_->Await() : std::span<const int32_t>();
}

// The answer's first tokens, or the one that begins reasoning.
std::span<const int32_t> ThinkingMask::BeforeReasoning() {
  if (answer_ == nullptr) return {};
  const std::span<const int32_t> answer = answer_->Await();
  const int32_t begin = place_.begin_id();
  if (answer.empty() || begin < 0) return answer;
  std::ranges::copy(answer, words_.begin());
  words_[static_cast<size_t>(begin) / 32] |= static_cast<int32_t>(uint32_t{1} << (begin % 32));
  return words_;
}

std::span<const int32_t> ThinkingMask::InReasoning() {
  if (answer_ == nullptr) return {};
  std::ranges::copy(thinking_words_, words_.begin());
  for (const int32_t id : end_->Beyond(place_.matched())) Clear(words_, id);
  return words_;
}

// What may come after a token that ends reasoning counts as well: it is open too.
int64_t ThinkingMask::open_draws() const {
  if (answer_ != nullptr || !forced_.empty()) return 0;
  switch (place_.part()) {
    case Part::kBefore:
      return 1 + left_;
    case Part::kReasoning:
      return left_;
    case Part::kAnswer:
      break;
  }
  return std::numeric_limits<int64_t>::max();
}

int64_t ThinkingMask::AwaitDrafts(std::span<const int32_t> drafts, std::span<int32_t> words) {
  const bool is_answer = place_.part() == Part::kAnswer && answer_ != nullptr;
  return is_answer ? answer_->AwaitDrafts(drafts, words) : 0;
}

void ThinkingMask::Drew(int32_t token) {
  const bool begins_answer =
      place_.part() == Part::kBefore && answer_ != nullptr && token != place_.begin_id();
  if (begins_answer) place_.BeginAnswer();
  if (place_.part() != Part::kAnswer) return Take(token);
  if (answer_ != nullptr) answer_->Drew(token);
}

void ThinkingMask::Take(int32_t token) {
  const bool is_reasoning = place_.part() == Part::kReasoning;
  text_.clear();
  detokenizer_.Step({&token, 1}, text_);
  place_.Step(token, text_);
  if (!forced_.empty()) {
    forced_ = forced_.subspan(1);
    if (forced_.empty()) place_.BeginAnswer();
    return;
  }
  if (is_reasoning) --left_;
  EndWhereDue();
}

void ThinkingMask::EndWhereDue() {
  if (place_.part() == Part::kReasoning && left_ <= 0) forced_ = end_->After(place_.matched());
}

void ThinkingMask::Flush() {
  if (answer_ != nullptr) answer_->Flush();
}

}  // namespace sluice::engine
