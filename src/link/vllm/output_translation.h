// Makes rows of a vLLM engine's outputs: it counts a request's tokens, which these do not say, and
// takes of their lists what the request has.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/token_columns.h"
#include "link/vllm/engine_core_outputs.h"
#include "sluice/engine_messages.hpp"

namespace sluice::link::vllm {

class OutputTranslation {
 public:
  // For requests with this number in their ids: RequestIdOf.
  explicit OutputTranslation(uint64_t life) : life_(life) {}

  uint64_t life() const { return life_; }

  // A request goes to the engine. The last request of a slot is known.
  void Begin(const EngineRequest& request);
  // It is not to give anything any more. False: it had ended.
  bool End(const RequestAddress& address);

  // False: nothing is known of such a request. The row is valid until the next call, and while
  // `output` is. An output that cannot be is a row that ends with kEngineLost and says why.
  bool Translate(const EngineCoreOutput& output, OutputRow& row);
  // Whether the row that Translate gave last leaves a request at the engine that has ended here.
  bool is_left_there() const { return is_left_there_; }

 private:
  struct Request {
    uint32_t generation = 0;  // 0: none
    int64_t tokens = 0;       // so far
    int64_t max_tokens = 0;
    int64_t prompt_tokens = 0;
    int32_t width = 0;         // of lists: 0 without log-probabilities
    int32_t prompt_width = 0;  // of the prompt's lists
    bool has_prompt = false;   // those of the prompt have come
    int64_t cached_tokens = -1;
  };
  // Empty, or why the lists are not those of so many tokens.
  static const char* Cut(const TokenLists& lists, size_t tokens, int32_t width,
                         engine::LogprobColumns& columns);
  const char* TakePrompt(const EngineCoreOutput& output, const Request& request, OutputRow& row);
  const char* TakeTokens(const EngineCoreOutput& output, const Request& request, OutputRow& row);
  static void TakeEnd(const EngineCoreOutput& output, const Request& request, OutputRow& row);

  uint64_t life_;
  std::vector<Request> requests_;  // by slot
  engine::LogprobColumns columns_;
  engine::LogprobColumns prompt_columns_;
  bool is_left_there_ = false;
};

}  // namespace sluice::link::vllm
