// What an engine costs around its model, and how soon it hears of stops and aborts. The model is a
// script, so nothing of it is in any figure; the frontends are other threads of this process, or
// another process, over ipc.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sluice/tokenizer.hpp"

namespace sluice::bench {

struct EngineBenchOptions {
  Tokenizer tokenizer;
  std::vector<int64_t> batches = {1, 64, 256, 1024};
  int64_t steps = 2000;          // timed, of each batch
  int64_t streams = 256;         // through the link
  int64_t stream_tokens = 2000;  // of each of them
  int64_t stops = 300;           // requests that end at a stop
  int64_t aborts = 1000;
  int64_t abort_rounds = 20;
  double stopped_seconds = 180;  // three times stopped for 30 seconds, and not
  // A program that has 64 streams of an engine and takes their tokens, until it is killed.
  std::function<std::vector<std::string>(const std::string& endpoint)> frontend;
};

struct EngineFigure {
  std::string task;
  int64_t batch = 0;
  int32_t steps_in_flight = 0;
  std::string unit;    // "ns", "tokens", "steps", "tokens_per_second", "share"
  double value = 0;    // the median
  double high = -1;    // of a hundred, the second largest; -1: there are too few
  double target = -1;  // of what `is_of_high` says, at most; -1: none
  bool is_of_high = false;

  bool IsMet() const { return target < 0 || (is_of_high ? high : value) <= target; }
};

void RunEngineBench(const EngineBenchOptions& options,
                    const std::function<void(const EngineFigure&)>& on_figure,
                    const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
