// What selection is compared with: plain, idiomatic C++ that reads an fp32 row, compiled with -O3.
//
// Peers get their memory from outside and keep it, so no call pays for an allocation. They are what
// people write, not what Sluice promises: they sum in fp32, in the order of the row or of the sort,
// and their nucleus may be off by some tokens.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/tasks.h"

namespace sluice::bench {

struct PeerMemory {
  explicit PeerMemory(int64_t vocab);

  std::vector<std::pair<float, int32_t>> pairs;
  std::vector<float> probabilities;
  std::vector<float> widened;
  std::mt19937 random;
};

struct Peer {
  std::string_view name;
  // How many times faster Sluice is to be on hot fp32 rows like a model's; 0: nothing is promised.
  double hot_target;
  // How many tokens are kept, or the id of the one that is drawn.
  int64_t (*run)(std::span<const float> row, PeerMemory& memory);
};

std::span<const Peer> PeersOf(Task task);

// The row as fp32: what a program that knows no bf16 does first. Its time belongs to the peer's.
std::span<const float> Widened(const void* row, DType dtype, int64_t vocab, PeerMemory& memory);

}  // namespace sluice::bench
