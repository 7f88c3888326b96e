#include "bench/tasks.h"

namespace sluice::bench {

std::string_view Name(Task task) {
  switch (task) {
    case Task::kGreedy:
      return "greedy";
    case Task::kTop50:
      return "top-50";
    case Task::kTop2048:
      return "top-2048";
    case Task::kTopP:
      return "top-p";
    case Task::kTopPCool:
      return "top-p-t0.7";
    case Task::kTopKTopP:
      return "k50-p0.9";
    case Task::kTopKTopPDraw:
      return "k50-p0.9-draw";
    case Task::kDraw:
      return "draw";
  }
  return "unknown";
}

bool Draws(Task task) { return task == Task::kTopKTopPDraw || task == Task::kDraw; }

SelectParams ParamsOf(Task task) {
  switch (task) {
    case Task::kGreedy:
      return {.temperature = 0.0f};
    case Task::kTop50:
      return {.top_k = 50};
    case Task::kTop2048:
      return {.top_k = 2048};
    case Task::kTopP:
      return {.top_p = 0.9f};
    case Task::kTopPCool:
      return {.temperature = 0.7f, .top_p = 0.9f};
    case Task::kTopKTopP:
    case Task::kTopKTopPDraw:
      return {.top_k = 50, .top_p = 0.9f};
    case Task::kDraw:
      return {};
  }
  return {};
}

namespace {

// Top-p at T = 1. What a row costs depends on its nucleus, and rare rows cost much more than the
// others, so the mean counts.
Targets TopPTargets(Distribution distribution) {
  switch (distribution) {
    case Distribution::kPeaked:
      return {{3.0, true}, {1.5, true}};
    case Distribution::kMid:
      return {{4.0, true}, {1.9, true}};
    case Distribution::kFlat:
      return {{12.0, true}, {3.2, true}};
    default:
      return {{kAnyRowHot, false}, {}};
  }
}

}  // namespace

bool IsLikeAModels(Distribution distribution) {
  return distribution == Distribution::kPeaked || distribution == Distribution::kMid ||
         distribution == Distribution::kFlat || distribution == Distribution::kNormal;
}

Targets TargetsOf(Task task, Distribution distribution, DType dtype) {
  const Targets any_row = {{kAnyRowHot, false}, {}};
  if (dtype != DType::kF32 || !IsLikeAModels(distribution)) return any_row;
  switch (task) {
    case Task::kGreedy:
      return {{1.10, false}, {1.15, false}};
    case Task::kTop50:
      return {{2.0, false}, {1.35, false}};
    case Task::kTop2048:
      return {{4.2, false}, {1.75, false}};
    case Task::kTopP:
      return TopPTargets(distribution);
    case Task::kTopPCool: {  // 1.1 times T = 1
      Targets targets = TopPTargets(distribution);
      if (targets.hot.times != kAnyRowHot) {
        targets.hot.times *= 1.1;
        targets.cold.times *= 1.1;
      }
      return targets;
    }
    case Task::kTopKTopP:
    case Task::kTopKTopPDraw:
      return {{2.5, false}, {1.4, false}};
    case Task::kDraw:
      return {{9.0, false}, {2.5, false}};
  }
  return any_row;
}

}  // namespace sluice::bench
