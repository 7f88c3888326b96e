#include "server/completions/failure.h"

#include <string>

namespace sluice::server {
namespace {

constexpr std::string_view kFull =
    "the server has as many requests as its engines take; try again later";

// The runner or the engine's gate: by the code as ToApiError has it.
ApiError ByCode(const ClientOutput& output) {
  const std::string message(output.message);
  const bool is_of_request =
      output.code == ErrorCode::kInvalidValue || output.code == ErrorCode::kInvalidType;
  const bool is_full =
      output.code == ErrorCode::kExhausted && output.parameter.starts_with("requests");
  if (is_full) return Unavailable(kFull);
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
      return Unavailable("the engine that computed this request was lost; it may be sent again");
    default:
      return Unavailable("the engine has stopped this request");
  }
}

ApiError SubmitFailure(const Error& refusal) {
  switch (refusal.code()) {
    case ErrorCode::kExhausted:
      return Unavailable(kFull);
    case ErrorCode::kUnavailable:
      return Unavailable("no engine is ready to take the request; try again later");
    case ErrorCode::kInvalidValue:
    case ErrorCode::kInvalidType:
      break;
  }
  return ToApiError(refusal);
}

void NameGrammarField(const CompletionRequest& asked, ApiError& error) {
  if (!asked.grammar.has_value()) return;
  const std::string_view name = Name(asked.grammar->kind);
  // "json_schema", or "json_schema.size()"
  if (std::string_view(error.param).substr(0, error.param.find('.')) != name) return;
  const std::string& field =
      asked.grammar_text_field.empty() ? asked.grammar_field : asked.grammar_text_field;
  if (error.message.starts_with(name)) error.message.replace(0, name.size(), field);
  error.param = field;
}

ApiError NoGrammars(const CompletionRequest& asked) {
  return {.message = asked.grammar_field + " is not supported: the engine has no grammars. " +
                     "Install \"pip install --no-deps xgrammar==0.2.8 "
                     "apache-tvm-ffi==0.1.15.post2\" where it runs, and start it again",
          .param = asked.grammar_field,
          .code = "unsupported_parameter"};
}

}  // namespace sluice::server
