#include "research/clusters/kmeans_cpu.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/rows.h"

namespace sluice::research {
namespace {

constexpr int64_t kRowsInTask = 48;
constexpr int64_t kMeansAtOnce = 64;  // scored, then looked at; 12 KiB of a caller's stack
constexpr int64_t kColumnsInTask = 32;

const float* PointOf(const MeansTask& task, size_t i) {
  return task.points + int64_t{task.rows[i]} * task.width;
}

// What an inner product lacks to be an order of distances; 0 for directions.
std::vector<float> MinusHalfSquares(const MeansTask& task) {
  const auto width = static_cast<size_t>(task.width);
  std::vector<float> halves(task.means.size() / width);
  for (size_t c = 0; c < halves.size() && !task.is_spherical; ++c) {
    const float* const mean = &task.means[c * width];
    halves[c] = static_cast<float>(-0.5 * DotInDouble(mean, mean, width));
  }
  return halves;
}

}  // namespace

void CpuKMeans::Assign(const MeansTask& task) const {
  const int64_t clusters = std::ssize(task.means) / task.width;
  const std::vector<float> halves = MinusHalfSquares(task);
  const MatrixView points = {task.points, task.rows.back() + 1, task.width,
                             task.width,  DType::kF32,          {}};
  const int64_t tasks = (std::ssize(task.rows) + kRowsInTask - 1) / kRowsInTask;
  ForEachRow(parallel_, tasks, [&](int64_t part, int) {
    const std::span<const int32_t> rows = task.rows.subspan(
        static_cast<size_t>(part * kRowsInTask),
        static_cast<size_t>(std::min(kRowsInTask, std::ssize(task.rows) - part * kRowsInTask)));
    int32_t* const cluster_of = &task.cluster_of[static_cast<size_t>(part * kRowsInTask)];
    int32_t ends[kRowsInTask + 1] = {};  // the points are its rows, each the end of its request
    std::transform(rows.begin(), rows.end(), ends + 1, [](int32_t row) { return row + 1; });
    float best[kRowsInTask];
    std::fill_n(best, kRowsInTask, -INFINITY);
    for (int64_t first = 0; first < clusters; first += kMeansAtOnce) {
      const int64_t count = std::min(kMeansAtOnce, clusters - first);
      float scores[kRowsInTask * kMeansAtOnce];
      const MatrixView some = {&task.means[static_cast<size_t>(first * task.width)],
                               count,
                               task.width,
                               task.width,
                               DType::kF32,
                               {}};
      const DenseHead means = {
          some, std::span(halves).subspan(static_cast<size_t>(first), static_cast<size_t>(count))};
      dense_.project(means, points, {ends, rows.size() + 1},
                     {scores, std::ssize(rows), count, count, DType::kF32, {}}, {});
      for (size_t i = 0; i < rows.size(); ++i) {
        for (int64_t c = 0; c < count; ++c) {
          const float score = scores[static_cast<int64_t>(i) * count + c];
          if (!(score > best[i])) continue;
          best[i] = score;
          cluster_of[i] = static_cast<int32_t>(first + c);
        }
      }
    }
  });
}

void CpuKMeans::Move(const MeansTask& task) const {
  const auto width = static_cast<size_t>(task.width);
  const size_t clusters = task.means.size() / width;
  std::vector<int64_t> sizes(clusters);
  for (const int32_t c : task.cluster_of) ++sizes[static_cast<size_t>(c)];
  const int64_t tasks = (task.width + kColumnsInTask - 1) / kColumnsInTask;
  ForEachRow(parallel_, tasks, [&](int64_t part, int) {
    const auto begin = static_cast<size_t>(part * kColumnsInTask);
    const size_t columns = std::min<size_t>(kColumnsInTask, width - begin);
    std::vector<double> sums(clusters * columns);
    for (size_t i = 0; i < task.rows.size(); ++i) {
      const float* const point = PointOf(task, i) + begin;
      double* const sum = &sums[static_cast<size_t>(task.cluster_of[i]) * columns];
      for (size_t j = 0; j < columns; ++j) sum[j] += static_cast<double>(point[j]);
    }
    for (size_t c = 0; c < clusters; ++c) {
      if (sizes[c] == 0) continue;
      for (size_t j = 0; j < columns; ++j) {
        task.means[c * width + begin + j] =
            static_cast<float>(sums[c * columns + j] / static_cast<double>(sizes[c]));
      }
    }
  });
  if (!task.is_spherical) return;
  for (size_t c = 0; c < clusters; ++c) {
    float* const mean = &task.means[c * width];
    const double norm = std::sqrt(DotInDouble(mean, mean, width));
    for (size_t j = 0; norm > 0.0 && j < width; ++j) {
      mean[j] = static_cast<float>(static_cast<double>(mean[j]) / norm);
    }
  }
}

void CpuKMeans::Find(const MeansTask& task) const {
  Assign(task);
  for (int32_t round = 0; round < task.rounds; ++round) {
    Move(task);
    Assign(task);
    if (task.progress != nullptr) task.progress(task.progress_context, round + 1);
  }
}

}  // namespace sluice::research
