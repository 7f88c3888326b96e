#include "server/api/response/choice_delta.h"

namespace sluice::server {

std::string_view FinishReasonName(GenerationEnd end) {
  const bool is_stop = end == GenerationEnd::kStopString || end == GenerationEnd::kStopToken;
  return is_stop ? "stop" : "length";
}

}  // namespace sluice::server
