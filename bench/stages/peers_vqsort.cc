// Peers that sort with Highway's VQSort and take exp with its vector mathematics.
#include <cstddef>
#include <cstdint>

#include "bench/stages/peers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/stages/peers_vqsort.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// After the file that includes this one once for each target.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// exp(scale * (x - max)) of every value, and their sum.
float ExpAndSum(const float* HWY_RESTRICT x, size_t size, float max, float scale,
                float* HWY_RESTRICT weights) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  const auto m = hn::Set(d, max);
  const auto s = hn::Set(d, scale);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto weight = hn::Exp(d, hn::Mul(hn::Sub(hn::LoadU(d, x + i), m), s));
    hn::StoreU(weight, d, weights + i);
    sum = hn::Add(sum, weight);
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < size; ++i) {
    weights[i] = hn::GetLane(hn::Exp(d, hn::Set(d, scale * (x[i] - max))));
    total += weights[i];
  }
  return total;
}

// The ids of all values from the threshold on, ascending. Room for as many as there are.
size_t CollectFrom(const float* HWY_RESTRICT x, size_t size, float threshold,
                   int32_t* HWY_RESTRICT ids) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t lanes = hn::Lanes(d);
  const auto t = hn::Set(d, threshold);
  size_t count = 0;
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto is_kept = hn::Ge(hn::LoadU(d, x + i), t);
    if (hn::AllFalse(d, is_kept)) continue;
    const auto id = hn::Iota(di, static_cast<int32_t>(i));
    count += hn::CompressBlendedStore(id, hn::RebindMask(di, is_kept), di, ids + count);
  }
  for (; i < size; ++i) {
    if (x[i] >= threshold) ids[count++] = static_cast<int32_t>(i);
  }
  return count;
}

}  // namespace sluice::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "hwy/contrib/sort/vqsort.h"

namespace sluice::bench {
namespace {

HWY_EXPORT(ExpAndSum);
HWY_EXPORT(CollectFrom);

void Sort(std::span<const float> row, PeerMemory& memory) {
  static const hwy::Sorter sorter;
  std::copy(row.begin(), row.end(), memory.sorted.begin());
  sorter(memory.sorted.data(), row.size(), hwy::SortDescending());
}

int64_t CollectFromThreshold(std::span<const float> row, float threshold, PeerMemory& memory) {
  return static_cast<int64_t>(
      HWY_DYNAMIC_DISPATCH(CollectFrom)(row.data(), row.size(), threshold, memory.ids.data()));
}

int64_t TopK(std::span<const float> row, size_t k, PeerMemory& memory) {
  Sort(row, memory);
  return CollectFromThreshold(row, memory.sorted[std::min(k, row.size()) - 1], memory);
}

int64_t TopP(std::span<const float> row, float temperature, PeerMemory& memory) {
  Sort(row, memory);
  const float total =
      HWY_DYNAMIC_DISPATCH(ExpAndSum)(memory.sorted.data(), row.size(), memory.sorted[0],
                                      1.0f / temperature, memory.probabilities.data());
  float sum = 0.0f;
  size_t last = 0;
  for (; last + 1 < row.size(); ++last) {
    sum += memory.probabilities[last];
    if (sum >= kPeerShare * total) break;
  }
  return CollectFromThreshold(row, memory.sorted[last], memory);
}

}  // namespace

int64_t VqsortTop50(std::span<const float> row, PeerMemory& memory) {
  return TopK(row, 50, memory);
}
int64_t VqsortTop2048(std::span<const float> row, PeerMemory& memory) {
  return TopK(row, 2048, memory);
}
int64_t VqsortTopP(std::span<const float> row, PeerMemory& memory) {
  return TopP(row, 1.0f, memory);
}
int64_t VqsortTopPCool(std::span<const float> row, PeerMemory& memory) {
  return TopP(row, 0.7f, memory);
}

}  // namespace sluice::bench
#endif
