#include "server/completions/failure.h"

#include <string>

namespace sluice::server {
namespace {

// The runner or the engine's gate: by the code as ToApiError has it.
ApiError ByCode(const ClientOutput& output) {
  const std::string message(output.message);
  const bool is_of_request =
      output.code == ErrorCode::kInvalidValue || output.code == ErrorCode::kInvalidType;
  if (!is_of_request) return Unavailable(message);
  return {.message = message, .param = std::string(output.parameter)};
}

ApiError ByStatus(RowStatus status) {
  switch (status) {
    case RowStatus::kEmptySupport:
      return {.message = "what the request allows and forbids leaves no token to draw",
              .code = std::string(Name(status))};
    case RowStatus::kBadParam:
      return {.message = "a sampling parameter is out of its range",
              .code = std::string(Name(status))};
    default:
      break;
  }
  ApiError error =
      InternalError("the model gave values that are no logits: " + std::string(Name(status)));
  error.code = Name(status);
  return error;
}

}  // namespace

bool HasFinishReason(GenerationEnd end) {
  return end == GenerationEnd::kStopString || end == GenerationEnd::kStopToken ||
         end == GenerationEnd::kLength || end == GenerationEnd::kContext;
}

ApiError FailureOf(const ClientOutput& output) {
  switch (output.end) {
    case GenerationEnd::kRejected:
      return ByCode(output);
    case GenerationEnd::kStatus:
      return output.status == RowStatus::kOk ? ByCode(output) : ByStatus(output.status);
    case GenerationEnd::kEngineLost:
      return Unavailable(output.message);
    default:
      return Unavailable("the engine has stopped this request");
  }
}

}  // namespace sluice::server
