#include "server/api/response/choice_delta.h"

namespace sluice::server {

std::string_view FinishReasonName(const ChoiceEnd& end) {
  const bool is_stop =
      end.end == GenerationEnd::kStopString || end.end == GenerationEnd::kStopToken;
  if (!is_stop) return "length";
  return end.has_calls ? "tool_calls" : "stop";
}

}  // namespace sluice::server
