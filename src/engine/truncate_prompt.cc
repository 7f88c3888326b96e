// Which tokens of a prompt that is too long are kept.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/generator.hpp"
#include "support/check.h"

namespace sluice {

std::vector<int32_t> TruncatePrompt(std::span<const int32_t> prompt, int64_t context,
                                    int64_t max_tokens, int64_t first) {
  CheckInRange("context", context, 2, INT64_MAX);
  CheckInRange("max_tokens", max_tokens, 0, INT64_MAX);
  CheckInRange("first", first, 0, context - 2);
  const int64_t room = std::clamp<int64_t>(max_tokens, 1, context / 2);
  const int64_t kept = std::max(context - room, first + 1);
  if (std::ssize(prompt) <= kept) return {prompt.begin(), prompt.end()};
  const auto begin = prompt.first(static_cast<size_t>(first));
  const auto end = prompt.last(static_cast<size_t>(kept - first));
  std::vector<int32_t> result(begin.begin(), begin.end());
  result.insert(result.end(), end.begin(), end.end());
  return result;
}

}  // namespace sluice
