#include "bench/peers.h"

#include <algorithm>
#include <cmath>

#include "bench/rows.h"

namespace sluice::bench {
namespace {

using Pair = std::pair<float, int32_t>;
constexpr float kShare = 0.9f;

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

// The first of the sorted pairs whose running sum reaches the share.
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
  return CutAtShare(memory.pairs, kShare);
}

// Top-k, then the softmax of what is left, then top-p: how many of memory.pairs are kept, as
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
  return CutAtShare(kept, kShare);
}

int64_t TopKTopPDraw(std::span<const float> row, PeerMemory& memory) {
  const auto count = static_cast<size_t>(TopKTopP(row, memory));
  float mass = 0.0f;
  for (size_t i = 0; i < count; ++i) mass += memory.pairs[i].first;
  float left = Uniform(memory) * mass;
  for (size_t i = 0; i + 1 < count; ++i) {
    left -= memory.pairs[i].first;
    if (left < 0.0f) return memory.pairs[i].second;
  }
  return memory.pairs[count - 1].second;
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

constexpr Peer kGreedyPeers[] = {{"max_element", 30, MaxElement}};
constexpr Peer kTop50Peers[] = {{"partial_sort", 0, PartialSort<50>}, {"sort", 50, FullSort}};
constexpr Peer kTop2048Peers[] = {{"nth_element", 0, NthElement}};
constexpr Peer kTopPPeers[] = {{"softmax_sort_cumsum", 0, SoftmaxSort<10>}};
constexpr Peer kTopPCoolPeers[] = {{"softmax_sort_cumsum", 0, SoftmaxSort<7>}};
constexpr Peer kTopKTopPPeers[] = {{"partial_sort_softmax_cumsum", 0, TopKTopP}};
constexpr Peer kTopKTopPDrawPeers[] = {{"partial_sort_softmax_cumsum_draw", 0, TopKTopPDraw}};
constexpr Peer kDrawPeers[] = {{"softmax_cdf", 0, SoftmaxCdf},
                               {"softmax_exponential_argmax", 10, SoftmaxExponentialArgmax}};

}  // namespace

PeerMemory::PeerMemory(int64_t vocab)
    : pairs(static_cast<size_t>(vocab)),
      probabilities(static_cast<size_t>(vocab)),
      widened(static_cast<size_t>(vocab)) {}

std::span<const Peer> PeersOf(Task task) {
  switch (task) {
    case Task::kGreedy:
      return kGreedyPeers;
    case Task::kTop50:
      return kTop50Peers;
    case Task::kTop2048:
      return kTop2048Peers;
    case Task::kTopP:
      return kTopPPeers;
    case Task::kTopPCool:
      return kTopPCoolPeers;
    case Task::kTopKTopP:
      return kTopKTopPPeers;
    case Task::kTopKTopPDraw:
      return kTopKTopPDrawPeers;
    case Task::kDraw:
      return kDrawPeers;
  }
  return {};
}

std::span<const float> Widened(const void* row, DType dtype, int64_t vocab, PeerMemory& memory) {
  const auto size = static_cast<size_t>(vocab);
  if (dtype == DType::kF32) return {static_cast<const float*>(row), size};
  const auto* const bits = static_cast<const uint16_t*>(row);
  for (size_t i = 0; i < size; ++i) memory.widened[i] = WidenBf16(bits[i]);
  return memory.widened;
}

}  // namespace sluice::bench
