#include "bench/stages/peers.h"

#include <algorithm>
#include <cmath>

#include "bench/support/rows.h"

namespace sluice::bench {
namespace {

using Pair = std::pair<float, int32_t>;

bool Before(const Pair& a, const Pair& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

void MakePairs(std::span<const float> row, PeerMemory& memory) {
  for (size_t i = 0; i < row.size(); ++i) memory.pairs[i] = {row[i], static_cast<int32_t>(i)};
}

// Probabilities of the row, in its order.
void Softmax(std::span<const float> row, float temperature, std::span<float> probabilities) {
  const float max = *std::max_element(row.begin(), row.end());
  float sum = 0.0f;
  for (size_t i = 0; i < row.size(); ++i) {
    probabilities[i] = std::exp((row[i] - max) / temperature);
    sum += probabilities[i];
  }
  for (float& probability : probabilities) probability /= sum;
}

float Uniform(PeerMemory& memory) { return static_cast<float>(memory.random() >> 8) * 0x1p-24f; }

int64_t MaxElement(std::span<const float> row, PeerMemory&) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

template <int kK>
int64_t PartialSort(std::span<const float> row, PeerMemory& memory) {
  MakePairs(row, memory);
  const int64_t k = std::min<int64_t>(kK, std::ssize(row));
  std::partial_sort(memory.pairs.begin(), memory.pairs.begin() + k, memory.pairs.end(), Before);
  return k;
}

int64_t FullSort(std::span<const float> row, PeerMemory& memory) {
  MakePairs(row, memory);
  std::sort(memory.pairs.begin(), memory.pairs.end(), Before);
  return std::min<int64_t>(50, std::ssize(row));
}

int64_t NthElement(std::span<const float> row, PeerMemory& memory) {
  MakePairs(row, memory);
  const int64_t k = std::min<int64_t>(2048, std::ssize(row));
  if (k < std::ssize(row)) {
    std::nth_element(memory.pairs.begin(), memory.pairs.begin() + k, memory.pairs.end(), Before);
  }
  return k;
}

// The first of the sorted pairs at which the running sum reaches the share.
int64_t CutAtShare(std::span<const Pair> sorted, float share) {
  float sum = 0.0f;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += sorted[i].first;
    if (sum >= share) return static_cast<int64_t>(i) + 1;
  }
  return std::ssize(sorted);
}

template <int kTenths>
int64_t SoftmaxSort(std::span<const float> row, PeerMemory& memory) {
  Softmax(row, static_cast<float>(kTenths) * 0.1f, memory.probabilities);
  MakePairs(memory.probabilities, memory);
  std::sort(memory.pairs.begin(), memory.pairs.end(), Before);
  return CutAtShare(memory.pairs, kPeerShare);
}

// Top-k, then the softmax of the rest, then top-p: how many of memory.pairs are kept, as
// probabilities.
int64_t TopKTopP(std::span<const float> row, PeerMemory& memory) {
  const auto k = static_cast<size_t>(PartialSort<50>(row, memory));
  const std::span<Pair> kept(memory.pairs.data(), k);
  const float max = kept[0].first;
  float sum = 0.0f;
  for (Pair& pair : kept) {
    pair.first = std::exp(pair.first - max);
    sum += pair.first;
  }
  for (Pair& pair : kept) pair.first /= sum;
  return CutAtShare(kept, kPeerShare);
}

// One of the first `count` pairs, by their probabilities.
int64_t DrawFromPairs(size_t count, PeerMemory& memory) {
  float mass = 0.0f;
  for (size_t i = 0; i < count; ++i) mass += memory.pairs[i].first;
  float left = Uniform(memory) * mass;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= memory.pairs[i].first;
    if (left < 0.0f) return memory.pairs[i].second;
  }
  return memory.pairs[count - 1].second;
}

int64_t TopKTopPDraw(std::span<const float> row, PeerMemory& memory) {
  return DrawFromPairs(static_cast<size_t>(TopKTopP(row, memory)), memory);
}

int64_t SoftmaxCdf(std::span<const float> row, PeerMemory& memory) {
  Softmax(row, 1.0f, memory.probabilities);
  float left = Uniform(memory);
  for (size_t i = 0; i < row.size(); ++i) {
    left -= memory.probabilities[i];
    if (left < 0.0f) return static_cast<int64_t>(i);
  }
  return std::ssize(row) - 1;
}

// As engines do it on a tensor: each probability over an exponential number, and the largest wins.
int64_t SoftmaxExponentialArgmax(std::span<const float> row, PeerMemory& memory) {
  Softmax(row, 1.0f, memory.probabilities);
  for (float& probability : memory.probabilities) {
    probability /= -std::log(1.0f - Uniform(memory));
  }
  return std::max_element(memory.probabilities.begin(), memory.probabilities.end()) -
         memory.probabilities.begin();
}

// Top-p as people write it, and one token of the nucleus.
int64_t SoftmaxSortDraw(std::span<const float> row, PeerMemory& memory) {
  const int64_t count = SoftmaxSort<10>(row, memory);
  return DrawFromPairs(static_cast<size_t>(count), memory);
}

constexpr PeerTarget kNoTarget = {};
constexpr PeerTarget Always(double times) { return {times, times, times}; }

// VQSort is the fastest sort that there is, but a sort: on no row may it win.
[[maybe_unused]] constexpr PeerTarget kVqsortTopP = {30.0, 8.0, 1.0};

}  // namespace

PeerMemory::PeerMemory(int64_t vocab)
    : pairs(static_cast<size_t>(vocab)),
      probabilities(static_cast<size_t>(vocab)),
      sorted(static_cast<size_t>(vocab)),
      ids(static_cast<size_t>(vocab)),
      widened(static_cast<size_t>(vocab)) {}

std::vector<Peer> PeersOf(Task task) {
  switch (task) {
    case Task::kGreedy:
      return {{"max_element", Always(30.0), MaxElement}};
    case Task::kTop50:
      return {{"partial_sort", kNoTarget, PartialSort<50>},
              {"sort", Always(50.0), FullSort},
#if SLUICE_BENCH_VQSORT
              {"vqsort", kNoTarget, VqsortTop50}
#endif
      };
    case Task::kTop2048:
      return {{"nth_element", kNoTarget, NthElement},
#if SLUICE_BENCH_VQSORT
              {"vqsort", kNoTarget, VqsortTop2048}
#endif
      };
    case Task::kTopP:
      return {{"softmax_sort_cumsum", kNoTarget, SoftmaxSort<10>},
#if SLUICE_BENCH_VQSORT
              {"vqsort_exp_cumsum", kVqsortTopP, VqsortTopP}
#endif
      };
    case Task::kTopPCool:
      return {{"softmax_sort_cumsum", kNoTarget, SoftmaxSort<7>},
#if SLUICE_BENCH_VQSORT
              {"vqsort_exp_cumsum", kNoTarget, VqsortTopPCool}
#endif
      };
    case Task::kTopKTopP:
      return {{"partial_sort_softmax_cumsum", kNoTarget, TopKTopP}};
    case Task::kTopKTopPDraw:
    case Task::kTopKTopPDrawCdf:
      return {{"partial_sort_softmax_cumsum_draw", kNoTarget, TopKTopPDraw}};
    case Task::kTopPDraw:
    case Task::kTopPDrawCdf:
      return {{"softmax_sort_cumsum_draw", kNoTarget, SoftmaxSortDraw}};
    case Task::kDraw:
      return {{"softmax_cdf", kNoTarget, SoftmaxCdf},
              {"softmax_exponential_argmax", Always(10.0), SoftmaxExponentialArgmax}};
    case Task::kDrawCdf:
      return {{"softmax_cdf", kNoTarget, SoftmaxCdf}};
  }
  return {};
}

double TargetOn(const PeerTarget& target, Distribution distribution) {
  switch (distribution) {
    case Distribution::kPeaked:
    case Distribution::kMid:
      return target.small;
    case Distribution::kFlat:
      return target.flat;
    case Distribution::kNormal:
      return target.normal;
    default:
      return 0.0;
  }
}

std::string_view MissingPeers() {
#if SLUICE_BENCH_VQSORT
  return "";
#else
  return "VQSort: this build did not find Highway's libhwy_contrib";
#endif
}

std::span<const float> Widened(const void* row, DType dtype, int64_t vocab, PeerMemory& memory) {
  const auto size = static_cast<size_t>(vocab);
  if (dtype == DType::kF32) return {static_cast<const float*>(row), size};
  const auto* const bits = static_cast<const uint16_t*>(row);
  for (size_t i = 0; i < size; ++i) memory.widened[i] = WidenBf16(bits[i]);
  return memory.widened;
}

}  // namespace sluice::bench
