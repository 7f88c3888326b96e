// One choice of a response: how far it is, and what of it was not written yet.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "server/api/choice_delta.h"
#include "sluice/client.hpp"

namespace sluice::server {

class LiveExchange;

// Text and tokens that wait to be written, in one piece however many outputs they came in.
class PendingDelta {
 public:
  // What is told about tokens, beside the text.
  struct Wanted {
    bool ids = false;
    bool logprobs = false;
  };

  void Append(const ClientOutput& output, Wanted wanted);
  void Clear();  // keeps the memory
  bool IsEmpty() const { return text.empty() && ids.empty(); }
  TokenLogprobs logprobs() const;

  std::string text = {};
  std::vector<int32_t> ids = {};  // where ids or log-probabilities are wanted

 private:
  std::vector<float> logprobs_;
  int32_t width_ = 0;
  std::vector<int32_t> top_ids_;  // without the token itself
  std::vector<float> top_logprobs_;
};

struct Choice {
  LiveExchange* exchange = nullptr;
  RequestId request = {};  // until it has ended
  int32_t index = 0;
  bool is_live = false;     // in the engine
  bool is_heard = false;    // it has given an output, so the engine has taken it
  bool has_news = false;    // that were not written
  bool has_begun = false;   // role and prompt are written
  bool is_written = false;  // to its end
  GenerationEnd end = GenerationEnd::kNone;
  int32_t stop_token = -1;  // as ChoiceEnd has them
  std::string stop = {};
  int64_t tokens = 0;       // so far
  int64_t text_offset = 0;  // code points that were written
  PendingDelta pending = {};
  std::chrono::steady_clock::time_point last_output = {};
};

int64_t CountCodePoints(std::string_view text);

}  // namespace sluice::server
