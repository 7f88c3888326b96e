// What writing costs alone: every step one ::send() of so many bytes to each of many sockets, over
// loopback, to a process that reads them. No server can have more tokens a CPU-second than that at
// a token a write.
#pragma once

#include <chrono>
#include <cstdint>

namespace sluice::bench {

struct SendCeiling {
  double ns_a_send = 0;  // of the sender's CPU time
  int64_t sends = 0;
};

SendCeiling MeasureSends(int64_t sockets, int64_t bytes, std::chrono::nanoseconds step_time,
                         double seconds);

}  // namespace sluice::bench
