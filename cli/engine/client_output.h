// What a client's outputs come to, request by request, and waiting for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/token_columns.h"
#include "json/request_json.h"
#include "sluice/client.hpp"

namespace sluice::cli {

// Everything that a request has given so far.
struct RequestOutput {
  std::string text = {};
  engine::TokenColumns tokens = {};
  engine::LogprobColumns prompt = {};
  GenerationEnd end = GenerationEnd::kNone;
  std::string stop = {};
  int32_t stop_token = -1;
  RowStatus status = RowStatus::kOk;
  std::string message = {};
  ErrorCode code = ErrorCode::kInvalidValue;
  std::string parameter = {};
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;

  // An output of kDelta or kFinal.
  void Add(const ClientOutput& output);
  RequestResult Result() const;
  PromptLogprobs Prompt() const;
};

// "the engine refused it: ...", for ends that are failures; empty for the others.
std::string FailureText(const RequestOutput& output);

}  // namespace sluice::cli
