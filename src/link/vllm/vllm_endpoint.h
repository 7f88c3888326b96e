// "vllm+tcp://ADDRESS:PORT", and with "?ranks=N" at its end the place of N engines that were
// started as one (--data-parallel-size N).
#pragma once

#include <cstdint>
#include <string>

namespace sluice::link {

struct VllmEndpoint {
  std::string host;     // "tcp://ADDRESS"
  std::string address;  // "tcp://ADDRESS:PORT"
  std::string name;     // as it was given, without the number of ranks
  int32_t ranks = 1;

  // "vllm+tcp://ADDRESS:PORT", and of several "?rank=R" after it.
  std::string NameOf(int32_t rank) const;
};

inline constexpr int32_t kMostVllmRanks = 64;

// Throws Error naming what is wrong.
VllmEndpoint ReadVllmEndpoint(const std::string& endpoint);

}  // namespace sluice::link
