// Pieces of JSON, appended to a text that has room for them: nothing is allocated then.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/api/response/stream_writer.h"

namespace sluice::server {

template <typename T>
void AppendNumber(std::string& out, T value) {
  char text[32];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

inline void AppendQuoted(std::string& out, std::string_view text) {
  out.push_back('"');
  AppendEscaped(out, text);
  out.push_back('"');
}

inline void AppendIds(std::string& out, std::span<const int32_t> ids) {
  char separator = '[';
  for (const int32_t id : ids) {
    out.push_back(separator);
    AppendNumber(out, id);
    separator = ',';
  }
  out.append(ids.empty() ? "[]" : "]");
}

inline void AppendUsage(std::string& out, const Usage& usage) {
  out.append(R"({"prompt_tokens":)");
  AppendNumber(out, usage.prompt_tokens);
  out.append(R"(,"completion_tokens":)");
  AppendNumber(out, usage.completion_tokens);
  out.append(R"(,"total_tokens":)");
  AppendNumber(out, usage.prompt_tokens + usage.completion_tokens);
  if (usage.cached_tokens >= 0) {
    out.append(R"(,"prompt_tokens_details":{"cached_tokens":)");
    AppendNumber(out, usage.cached_tokens);
    out.push_back('}');
  }
  out.push_back('}');
}

// JSON has no infinity: what cannot be drawn has the number that vLLM gives it.
inline void AppendLogprob(std::string& out, float logprob) {
  if (std::isnan(logprob)) {
    out.append("null");
  } else if (logprob <= -9999.0f) {
    out.append("-9999.0");
  } else if (std::isinf(logprob)) {
    out.append("null");
  } else {
    AppendNumber(out, logprob);
  }
}

}  // namespace sluice::server
