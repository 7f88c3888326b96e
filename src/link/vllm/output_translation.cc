#include "link/vllm/output_translation.h"

#include <algorithm>
#include <cmath>

#include "link/vllm/engine_core_request.h"

namespace sluice::link::vllm {

void OutputTranslation::Begin(const EngineRequest& request) {
  const auto slot = static_cast<size_t>(request.address.slot);
  if (slot >= requests_.size()) requests_.resize(slot + 1);
  const auto& logprobs = request.params.logprobs;
  requests_[slot] = {
      .generation = request.address.generation,
      .max_tokens = request.max_tokens,
      .prompt_tokens = std::ssize(request.prompt),
      .width = logprobs.has_value() ? 1 + *logprobs : 0,
      .prompt_width = request.prompt_logprobs.has_value() ? 1 + *request.prompt_logprobs : 0};
}

bool OutputTranslation::End(const RequestAddress& address) {
  const auto slot = static_cast<size_t>(address.slot);
  if (slot >= requests_.size() || requests_[slot].generation != address.generation) return false;
  requests_[slot].generation = 0;
  return true;
}

bool OutputTranslation::Translate(const EngineCoreOutput& output, OutputRow& row) {
  row = {};
  is_left_there_ = false;
  const RequestAddress address = AddressOf(life_, output.request_id);
  if (address.slot < 0 || static_cast<size_t>(address.slot) >= requests_.size()) return false;
  Request& request = requests_[static_cast<size_t>(address.slot)];
  if (address.generation == 0 || request.generation != address.generation) return false;
  row.address = address;
  row.first_token = request.tokens;
  const char* why = TakePrompt(output, request, row);
  if (why == nullptr) why = TakeTokens(output, request, row);
  if (why == nullptr) {  // from here on nothing takes memory: a call that throws can come again
    request.tokens += std::ssize(row.ids);
    request.has_prompt = request.has_prompt || !row.prompt.IsEmpty();
    if (output.cached_tokens >= 0) {
      request.cached_tokens = std::min(output.cached_tokens, request.prompt_tokens);
    }
    TakeEnd(output, request, row);
  } else {
    row = {.address = address,
           .first_token = row.first_token,
           .end = GenerationEnd::kEngineLost,
           .message = why};
    is_left_there_ = !output.finish.has_value();
  }
  if (row.end != GenerationEnd::kNone) request.generation = 0;
  return true;
}

const char* OutputTranslation::Cut(const TokenLists& lists, size_t tokens, int32_t width,
                                   engine::LogprobColumns& columns) {
  const auto wanted = static_cast<size_t>(width);
  if (lists.rows != tokens) return "the engine sent log-probabilities of other tokens";
  if (lists.width < wanted) return "the engine sent fewer log-probabilities than requested";
  columns.Clear();
  columns.ranks.assign(lists.ranks.begin(), lists.ranks.end());
  columns.width = width;
  for (size_t i = 0; i < tokens; ++i) {
    const auto ids = lists.ids.subspan(i * lists.width, wanted);
    const auto values = lists.values.subspan(i * lists.width, wanted);
    if (std::ranges::any_of(values, [](float value) { return std::isnan(value); })) {
      return "the engine sent a log-probability that is NaN";
    }
    columns.logprobs.push_back(values[0]);
    engine::AppendTo(columns.ids, ids);
    engine::AppendTo(columns.values, values);
  }
  return nullptr;
}

// All of them come in one piece, before the first token or with it.
const char* OutputTranslation::TakePrompt(const EngineCoreOutput& output, const Request& request,
                                          OutputRow& row) {
  if (!output.prompt_logprobs.has_value() || request.prompt_width == 0 || request.has_prompt) {
    return nullptr;
  }
  const auto scored = static_cast<size_t>(request.prompt_tokens - 1);
  if (const char* const why =
          Cut(*output.prompt_logprobs, scored, request.prompt_width, prompt_columns_)) {
    return why;
  }
  row.prompt.first_token = 1;
  engine::SetLogprobs(row.prompt, prompt_columns_.View());
  return nullptr;
}

// The engine makes a token even for a prompt alone, because it makes one at least.
const char* OutputTranslation::TakeTokens(const EngineCoreOutput& output, const Request& request,
                                          OutputRow& row) {
  if (output.ids.empty() || request.max_tokens == 0) return nullptr;
  row.ids = output.ids;
  if (request.width == 0) return nullptr;
  if (!output.logprobs.has_value()) return "the engine sent no log-probabilities";
  if (const char* const why = Cut(*output.logprobs, row.ids.size(), request.width, columns_)) {
    return why;
  }
  engine::SetLogprobs(row, columns_.View());
  return nullptr;
}

void OutputTranslation::TakeEnd(const EngineCoreOutput& output, const Request& request,
                                OutputRow& row) {
  if (!output.finish.has_value()) return;
  row.cached_tokens = request.cached_tokens;
  switch (*output.finish) {
    case FinishReason::kStop:
      row.end = request.max_tokens == 0 ? GenerationEnd::kLength : GenerationEnd::kStopToken;
      break;
    case FinishReason::kLength:
      row.end =
          request.tokens >= request.max_tokens ? GenerationEnd::kLength : GenerationEnd::kContext;
      break;
    case FinishReason::kAbort:  // not requested here, or of a request that has ended here
      row.end = GenerationEnd::kEngineLost;
      row.message = "the engine aborted the request: it is being shut down";
      break;
    case FinishReason::kError:
      row.message =
          output.error_message.empty() ? "the engine failed at this request" : output.error_message;
      row.end = output.error_code.empty() ? GenerationEnd::kStatus : GenerationEnd::kRejected;
      row.code = output.error_code == "validation_error" ? ErrorCode::kInvalidValue
                                                         : ErrorCode::kUnavailable;
      break;
    case FinishReason::kRepetition:  // which no request sets
      row.end = GenerationEnd::kEngineLost;
      row.message = "the engine ended the text for its repetitions";
      break;
  }
}

}  // namespace sluice::link::vllm
