// sluice.Output: what a client of engines has to say about one request.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/token_columns.h"
#include "sluice/client.hpp"

namespace sluice::python {

namespace nb = nanobind;

// What is known of a request before any output of it.
struct OutputHead {
  uint64_t id = 0;
  OutputMode mode = OutputMode::kDelta;
  uint64_t seed = 0;
  bool has_logprobs = false;
  std::optional<int32_t> prompt_logprobs = {};
};

struct RequestOutput {
  RequestOutput(const OutputHead& request, const ClientOutput& output);

  // Becomes what one output in place of both would have been. Its arrays must not be out yet.
  void Join(const RequestOutput& later);
  // Throws for an end that the caller of a whole generation must not take for a text.
  void ThrowIfFailed() const;
  // One token of a prompt alone has none, and that in every output.
  bool HasPrompt() const {
    return head.prompt_logprobs.has_value() && (!prompt.logprobs.empty() || prompt_tokens == 1);
  }

  OutputHead head;
  std::string text;
  engine::TokenColumns tokens;
  engine::LogprobColumns prompt;
  GenerationEnd end;
  std::string stop;
  int32_t stop_token;
  RowStatus status;
  std::string message;
  ErrorCode code;
  std::string parameter;
  int64_t prompt_tokens;
  int64_t output_tokens;
};

void BindOutput(nb::module_& module);

}  // namespace sluice::python
