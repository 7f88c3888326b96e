// What a server over engines costs, and how it bears what happens to it. The engine is a
// script, the connections are loopback's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "sluice/model_text.hpp"

namespace sluice::bench {

struct ServeBenchOptions {
  ModelText text;
  int64_t write_streams = 512;  // tokens a CPU-second
  int64_t write_tokens = 1500;  // of each of them
  int64_t many_streams = 4096;  // at 20 tokens a second
  int64_t many_engines = 8;     // share them evenly, and next to that one engine has all
  int64_t many_tokens = 200;
  int64_t idle_connections = 10'000;
  int64_t disconnects = 1000;
  int64_t rounds = 5;  // of disconnects, and of engines that are killed
  int64_t lost_streams = 256;
  double send_seconds = 1.0;
};

struct ServeFigure {
  std::string task;
  int64_t streams = 0;
  std::string unit;
  double value = 0;
  double high = -1;    // its 99th percentile, or the worst of all rounds; -1: none
  double target = -1;  // -1: none
  bool is_at_least = false;
  bool is_of_high = false;

  bool IsMet() const {
    const double shown = is_of_high ? high : value;
    return target < 0 || (is_at_least ? shown >= target : shown <= target);
  }
};

void RunServeBench(const ServeBenchOptions& options,
                   const std::function<void(const ServeFigure&)>& on_figure,
                   const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
