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

void PendingDelta::Append(const ClientOutput& output, Wanted wanted) {
  text.append(output.text);
  if (wanted.ids || wanted.logprobs) ids.insert(ids.end(), output.ids.begin(), output.ids.end());
  if (!wanted.logprobs || output.ids.empty()) return;
  logprobs_.insert(logprobs_.end(), output.logprobs.begin(), output.logprobs.end());
  width_ = std::max(output.logprob_width - 1, 0);
  if (width_ == 0) return;
  const auto width = static_cast<size_t>(output.logprob_width);
  AppendTails(top_ids_, output.logprob_ids, width);
  AppendTails(top_logprobs_, output.logprob_values, width);
}

void PendingDelta::Clear() {
  text.clear();
  ids.clear();
  logprobs_.clear();
  top_ids_.clear();
  top_logprobs_.clear();
}

TokenLogprobs PendingDelta::logprobs() const {
  if (logprobs_.empty()) return {};
  return {.ids = ids,
          .logprobs = logprobs_,
          .width = width_,
          .top_ids = top_ids_,
          .top_logprobs = top_logprobs_};
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace sluice::server
