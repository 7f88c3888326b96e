// The text side on one core: detokenising a stream token by token, what stops add to it, encoding,
// and loading the tokenizer. The peer of the first is the way of Hugging Face's DecodeStream, in
// C++ over the same vocabulary: it decodes a window of tokens twice a token and compares.
//
// All that is about one token is timed in turns over the same 100,000 tokens, so that a machine
// that drifts is unfair to none, and what is compared is compared within a turn.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/tokenizer.hpp"

namespace sluice::bench {

struct DetokOptions {
  double budget_ms = 300;  // for one figure that is not timed in turns
  int64_t turns = 101;
  std::vector<int64_t> stream_lengths = {1000, 10000, 100000};
  std::vector<int64_t> prompt_lengths = {10, 1000, 100000};
};

struct DetokTiming {
  std::string task;
  int64_t n = 0;     // units of a call: tokens, or bytes for encode and load
  double ns = 0.0;   // of one unit; the median of calls
  double low = 0.0;  // the quartiles
  double high = 0.0;
  // For the algorithm of DecodeStream, where it is built in, and how many times ours that is:
  // the median over turns.
  double peer_ns = 0.0;
  double ratio = 0.0;
  // The same bytes appended one token after the other where all is known of them.
  double floor_ns = 0.0;
  // What a stream of text takes more than a detokeniser that takes so much, which may be less than
  // the noise; and how much it holds back, the mean over tokens.
  bool is_difference = false;
  double detokenise_ns = 0.0;
  double held_bytes = 0.0;
};

// `json` is the tokenizer's file, `text` what is encoded and decoded again.
void RunDetokBench(const std::string& json, const std::string& text, const DetokOptions& options,
                   const std::function<void(const DetokTiming&)>& on_timing);

}  // namespace sluice::bench
