#include "server/api/api_error.h"

#include "server/api/json_text.h"
#include "text/normalize/utf8.h"

namespace sluice::server {
namespace {

constexpr int kRetrySeconds = 1;

void AppendOptional(std::string& out, std::string_view text) {
  if (text.empty()) {
    out.append("null");
  } else {
    AppendQuotedAny(out, text);
  }
}

}  // namespace

void AppendQuotedAny(std::string& out, std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t size = text::ValidPrefix(text);
    valid.append(text.substr(0, size));
    text.remove_prefix(size);
    if (text.empty()) break;
    valid.append(text::kReplacement);
    text.remove_prefix(1);
  }
  AppendQuoted(out, valid);
}

ApiError ToApiError(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kInvalidValue:
    case ErrorCode::kInvalidType:
      break;
    case ErrorCode::kUnavailable:
    case ErrorCode::kExhausted:
      return Unavailable(error.what());
  }
  if (error.parameter() != "json") return {.message = error.what(), .param = error.parameter()};
  return {.message = "the body is refused: " + error.value() + "; allowed is " + error.allowed(),
          .code = "json_parse_error"};
}

ApiError InternalError(std::string_view what) {
  return {.status = 500, .message = std::string(what), .type = "server_error"};
}

ApiError Unavailable(std::string_view what) {
  return {.status = 503,
          .message = std::string(what),
          .type = "service_unavailable",
          .retry_after_seconds = kRetrySeconds};
}

std::string ErrorBody(const ApiError& error) {
  std::string out = R"({"error":{"message":)";
  AppendQuotedAny(out, error.message);
  out.append(R"(,"type":)");
  AppendQuotedAny(out, error.type);
  out.append(R"(,"param":)");
  AppendOptional(out, error.param);
  out.append(R"(,"code":)");
  AppendOptional(out, error.code);
  return out.append("}}");
}

}  // namespace sluice::server
