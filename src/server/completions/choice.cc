#include "server/completions/choice.h"

#include <algorithm>

namespace sluice::server {
namespace {

// Rows of `width` without their first element.
template <typename T>
void AppendTails(std::vector<T>& to, std::span<const T> rows, size_t width) {
  for (size_t begin = 0; begin < rows.size(); begin += width) {
    const std::span<const T> row = rows.subspan(begin, width);
    to.insert(to.end(), row.begin() + 1, row.end());
  }
}

}  // namespace

void ReportedTokens::Append(std::span<const float> logprobs, std::span<const int32_t> ranks,
                            int32_t width, std::span<const int32_t> listed,
                            std::span<const float> values) {
  logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
  ranks_.insert(ranks_.end(), ranks.begin(), ranks.end());
  width_ = std::max(width - 1, 0);
  if (width_ == 0) return;
  AppendTails(top_ids_, listed, static_cast<size_t>(width));
  AppendTails(top_logprobs_, values, static_cast<size_t>(width));
}

void ReportedTokens::Clear() {
  logprobs_.clear();
  ranks_.clear();
  top_ids_.clear();
  top_logprobs_.clear();
}

TokenLogprobs ReportedTokens::Of(std::span<const int32_t> ids) const {
  if (IsEmpty()) return {};
  return {.ids = ids,
          .logprobs = logprobs_,
          .ranks = ranks_,
          .width = width_,
          .top_ids = top_ids_,
          .top_logprobs = top_logprobs_};
}

void PendingDelta::Append(const ClientOutput& output, Reports wanted) {
  text.append(output.text);
  if (wanted.ids || wanted.logprobs) ids.insert(ids.end(), output.ids.begin(), output.ids.end());
  if (!wanted.logprobs || output.ids.empty()) return;
  reported.Append(output.logprobs, output.ranks, output.logprob_width, output.logprob_ids,
                  output.logprob_values);
}

void ChoiceParser::TakeApart(PendingDelta& pending, bool is_end) {
  parser_.Step(pending.text, new_);
  pending.text.clear();
  if (is_end) parser_.Finish(new_);
  for (size_t i = 0; i < new_.size(); ++i) {
    const OutputPart part = new_[i];
    const bool is_wanted =
        part.kind == PartKind::kContent ||
        (part.kind == PartKind::kReasoning && wanted_.reasoning) ||
        ((part.kind == PartKind::kCallBegin || part.kind == PartKind::kArguments) &&
         (part.call == 0 || wanted_.parallel));
    if (is_wanted) pending.parts.Append(part.kind, part.call, part.text);
  }
  new_.Clear();
}

void PendingDelta::Clear() {
  text.clear();
  parts.Clear();
  ids.clear();
  reported.Clear();
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace sluice::server
