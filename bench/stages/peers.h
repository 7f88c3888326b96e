// What selection is compared with: plain, idiomatic C++ that reads an fp32 row, compiled with -O3,
// and Highway's VQSort where its library was found.
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

#include "bench/support/tasks.h"

namespace sluice::bench {

inline constexpr float kPeerShare = 0.9f;  // their p

struct PeerMemory {
  explicit PeerMemory(int64_t vocab);

  std::vector<std::pair<float, int32_t>> pairs;
  std::vector<float> probabilities;
  std::vector<float> sorted;
  std::vector<int32_t> ids;
  std::vector<float> widened;
  std::mt19937 random;
};

// How many times faster Sluice is to be on hot fp32 rows, by the size of their nucleus; 0: nothing
// is promised.
struct PeerTarget {
  double small = 0.0;  // peaked and mid
  double flat = 0.0;
  double normal = 0.0;
};

struct Peer {
  std::string_view name;
  PeerTarget hot_target;
  // How many tokens are kept, or the id of the one that is drawn.
  int64_t (*run)(std::span<const float> row, PeerMemory& memory);
};

std::vector<Peer> PeersOf(Task task);
double TargetOn(const PeerTarget& target, Distribution distribution);

// What is not compared with in this build, and why; empty when nothing is missing.
std::string_view MissingPeers();

// The row as fp32: what a program without bf16 does first. Its time belongs to the peer's.
std::span<const float> Widened(const void* row, DType dtype, int64_t vocab, PeerMemory& memory);

// Peers by VQSort (peers_vqsort.cc): a sorted copy of the row, the boundary in it, and one more
// pass over the row to collect the tokens from there on. Highway 1.0.3 has no VQSelect, so top-k
// sorts too.
int64_t VqsortTop50(std::span<const float> row, PeerMemory& memory);
int64_t VqsortTop2048(std::span<const float> row, PeerMemory& memory);
int64_t VqsortTopP(std::span<const float> row, PeerMemory& memory);
int64_t VqsortTopPCool(std::span<const float> row, PeerMemory& memory);

}  // namespace sluice::bench
