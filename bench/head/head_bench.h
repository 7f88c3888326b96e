// The certified head next to the dense one, from hidden states to tokens. Both are timed in turns
// on the same hidden states; the dense head's time is that of the projection alone, so the ratio is
// what the certificate saves of it with the draw paid for. Every token is compared.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/head/heads.h"
#include "sluice/certified_sample.hpp"

namespace sluice::bench {

struct HeadOptions {
  std::vector<HeadShape> shapes = {{128256, 1024}, {262144, 640}};
  std::vector<int64_t> batches = {1, 8, 32};
  std::vector<CertificateKind> kinds = {CertificateKind::kDither4, CertificateKind::kStrict};
  std::vector<Backend> backends;
  int64_t calls = 21;  // of each head for one figure
  int threads = 1;
};

struct HeadTask {
  std::string_view name;
  std::string_view parameters;
  SelectParams params;
  bool needs_cut = true;
};
const std::vector<HeadTask>& HeadTasks();

struct HeadTiming {
  HeadShape shape;
  CertificateKind kind;
  std::string_view task;
  Backend backend;
  int64_t batch;
  double ns;        // of a call of the certified head, draw and all; the median
  double dense_ns;  // of a projection by the dense head
  double ratio;     // the median over turns
  int64_t plane_bytes;
  int64_t head_bytes;
  double bytes_share;  // read, of a read of the head; the mean, as the next two
  double survivors;    // a row
  double dense_rows;   // a row: how many took the dense head
  bool is_exact;       // every token was the dense head's
};

void RunHeadBench(const HeadOptions& options,
                  const std::function<void(const HeadTiming&)>& on_timing,
                  const std::function<void(const std::string&)>& on_progress);

}  // namespace sluice::bench
