// The text side on one core: detokenising a stream token by token, finding stops in it, encoding,
// and loading the tokenizer. The peer of the first is the way of Hugging Face's DecodeStream, in
// C++ over the same vocabulary: it decodes a window of tokens twice a token and compares.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/tokenizer.hpp"

namespace sluice::bench {

struct DetokOptions {
  double budget_ms = 300;  // for one figure
  std::vector<int64_t> stream_lengths = {1000, 10000, 100000};
  std::vector<int64_t> prompt_lengths = {10, 1000, 100000};
};

struct DetokTiming {
  std::string task;
  int64_t n = 0;            // units of a call: tokens, or bytes for encode and load
  double ns = 0.0;          // of one unit; the median of calls
  double peer_ns = 0.0;     // of the peer's; 0: none
  double held_bytes = 0.0;  // stops: the mean over tokens
};

// `json` is the tokenizer's file, `text` what is encoded and decoded again.
void RunDetokBench(const std::string& json, const std::string& text, const DetokOptions& options,
                   const std::function<void(const DetokTiming&)>& on_timing);

}  // namespace sluice::bench
