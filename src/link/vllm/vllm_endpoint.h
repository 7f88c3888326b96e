// "vllm+tcp://ADDRESS:PORT", and after it what its engines were started with: "?ranks=N" for
// --data-parallel-size N, "?max_logprobs=N" for --max-logprobs N, or both with "&" between them.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::link {

struct VllmEndpoint {
  std::string host;     // "tcp://ADDRESS"
  std::string address;  // "tcp://ADDRESS:PORT"
  std::string name;     // as it was given, without what follows the port
  int32_t ranks = 1;
  // What vLLM's own frontend allows by default; an engine does not report it. -1: all tokens.
  int32_t max_logprobs = 20;

  // "vllm+tcp://ADDRESS:PORT", and of several "?rank=R" after it.
  std::string NameOf(int32_t rank) const;
};

inline constexpr int32_t kMostVllmRanks = 64;

// Throws Error naming what is wrong.
VllmEndpoint ReadVllmEndpoint(const std::string& endpoint);

}  // namespace sluice::link
