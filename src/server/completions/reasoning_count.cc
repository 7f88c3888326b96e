#include "server/completions/reasoning_count.h"

namespace sluice::server {

void ReasoningCount::Step(std::span<const int32_t> ids) {
  for (const int32_t& id : ids) {
    text_.clear();
    detokenizer_.Step({&id, 1}, text_);
    ++waiting_;
    parser_.Step(text_, parts_);
    TakeParts();
  }
}

void ReasoningCount::Finish() {
  text_.clear();
  detokenizer_.Finish(text_);
  parser_.Step(text_, parts_);
  parser_.Finish(parts_);
  TakeParts();
}

void ReasoningCount::TakeParts() {
  if (parts_.IsEmpty()) return;
  bool is_reasoning = false;
  for (size_t i = 0; i < parts_.size(); ++i) {
    is_reasoning = is_reasoning || parts_[i].kind == PartKind::kReasoning;
  }
  if (is_reasoning) tokens_ += waiting_;
  waiting_ = 0;
  parts_.Clear();
}

}  // namespace sluice::server
