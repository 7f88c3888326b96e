// K-means by the threads of the caller.
#pragma once

#include <cstddef>

#include "head/dense_table.h"
#include "sluice/research/clusters.hpp"

namespace sluice::research {

inline double DotInDouble(const float* a, const float* b, size_t size) {
  double sum = 0.0;
  for (size_t i = 0; i < size; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// The same means for the same task on every machine: the inner products are those of a dense head
// that has the means as its rows. That is their price where no vector backend is: 40 times as long
// at 1024 elements as by a loop that may add in any order.
class CpuKMeans : public MeansFinder {
 public:
  explicit CpuKMeans(const ParallelFor& parallel) : parallel_(parallel) {}

  void Find(const MeansTask& task) const override;

 private:
  void Assign(const MeansTask& task) const;
  void Move(const MeansTask& task) const;

  const ParallelFor& parallel_;
  const DenseHeadTable& dense_ = DenseHeadTableFor(Backend::kAuto);
};

}  // namespace sluice::research
