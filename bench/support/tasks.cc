#include "bench/support/tasks.h"

#include <iterator>

namespace sluice::bench {

namespace {

struct TaskInfo {
  Task task;
  std::string_view name;
  SelectParams params;
  bool draws;
  DrawMethod method;
};

constexpr SelectParams kAll = {};
constexpr SelectParams kTop50Params = {.top_k = 50};
constexpr SelectParams kTopPParams = {.top_p = 0.9f};
constexpr SelectParams kTopKTopPParams = {.top_k = 50, .top_p = 0.9f};
constexpr DrawMethod kGumbel = DrawMethod::kGumbel;
constexpr DrawMethod kCdf = DrawMethod::kCdf;

// In the order of the enumeration.
constexpr TaskInfo kInfos[] = {
    {Task::kGreedy, "greedy", {.temperature = 0.0f}, false, kGumbel},
    {Task::kTop50, "top-50", kTop50Params, false, kGumbel},
    {Task::kTop2048, "top-2048", {.top_k = 2048}, false, kGumbel},
    {Task::kTopP, "top-p", kTopPParams, false, kGumbel},
    {Task::kTopPCool, "top-p-t0.7", {.temperature = 0.7f, .top_p = 0.9f}, false, kGumbel},
    {Task::kTopKTopP, "k50-p0.9", kTopKTopPParams, false, kGumbel},
    {Task::kTopKTopPDraw, "k50-p0.9-draw", kTopKTopPParams, true, kGumbel},
    {Task::kDraw, "draw", kAll, true, kGumbel},
    {Task::kDrawCdf, "draw-cdf", kAll, true, kCdf},
    {Task::kTopKTopPDrawCdf, "k50-p0.9-draw-cdf", kTopKTopPParams, true, kCdf},
    {Task::kTopPDraw, "top-p-draw", kTopPParams, true, kGumbel},
    {Task::kTopPDrawCdf, "top-p-draw-cdf", kTopPParams, true, kCdf},
};

constexpr bool IsInOrder() {
  for (size_t i = 0; i < std::size(kInfos); ++i) {
    if (static_cast<size_t>(kInfos[i].task) != i) return false;
  }
  return true;
}
static_assert(IsInOrder());

const TaskInfo& InfoOf(Task task) { return kInfos[static_cast<size_t>(task)]; }

}  // namespace

std::string_view Name(Task task) { return InfoOf(task).name; }
bool Draws(Task task) { return InfoOf(task).draws; }
DrawMethod MethodOf(Task task) { return InfoOf(task).method; }
SelectParams ParamsOf(Task task) { return InfoOf(task).params; }

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
    case Task::kTopKTopPDrawCdf:
    case Task::kTopPDraw:
    case Task::kTopPDrawCdf:
      return any_row;
    case Task::kDraw:
    case Task::kDrawCdf:
      return {{9.0, false}, {2.5, false}};
  }
  return any_row;
}

}  // namespace sluice::bench
