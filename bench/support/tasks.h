// What is timed, and how fast it is to be.
#pragma once

#include <cstdint>
#include <string_view>

#include "bench/support/rows.h"
#include "sluice/params.hpp"

namespace sluice::bench {

enum class Task : uint8_t {
  kGreedy,
  kTop50,
  kTop2048,
  kTopP,          // p = 0.9
  kTopPCool,      // as kTopP, at T = 0.7
  kTopKTopP,      // k = 50, p = 0.9: the set
  kTopKTopPDraw,  // and one token of it
  kDraw,          // one token of the whole vocabulary, T = 1
  kDrawCdf,       // the same three with one uniform number a row instead of Gumbel noise
  kTopKTopPDrawCdf,
  kTopPDraw,  // p = 0.9, and one token of the nucleus
  kTopPDrawCdf,
};

inline constexpr Task kSelectTasks[] = {Task::kGreedy,       Task::kTop50,    Task::kTop2048,
                                        Task::kTopP,         Task::kTopPCool, Task::kTopKTopP,
                                        Task::kTopKTopPDraw, Task::kDraw};

inline constexpr Task kDrawTasks[] = {Task::kDraw,         Task::kDrawCdf,
                                      Task::kTopPDraw,     Task::kTopPDrawCdf,
                                      Task::kTopKTopPDraw, Task::kTopKTopPDrawCdf};

std::string_view Name(Task task);
bool Draws(Task task);
DrawMethod MethodOf(Task task);
SelectParams ParamsOf(Task task);

// Times the one-read floor that a task may take; 0 where nothing is promised.
struct Target {
  double times = 0.0;
  bool is_of_mean = false;  // else of the median
};

struct Targets {
  Target hot;
  Target cold;
};

// They are stated for fp32 rows like a model's, of kTargetVocab tokens. Every other row of that
// width has the one target that none may take longer than kAnyRowHot times the floor.
inline constexpr int64_t kTargetVocab = 128256;
inline constexpr double kAnyRowHot = 40.0;
bool IsLikeAModels(Distribution distribution);
Targets TargetsOf(Task task, Distribution distribution, DType dtype);

}  // namespace sluice::bench
