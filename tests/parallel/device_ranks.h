// Ranks one after the other on one GPU: what they exchange is copied.
#pragma once

#include "parallel/cuda/device_shards.h"
#include "tests/support/device.h"

namespace sluice::test {

// ranks: pointers to who has an argument().
template <typename Ranks>
void Exchange(Ranks& ranks, size_t bytes, const std::byte* (*own)(const cuda::ShardMemory&),
              std::byte* (*all)(const cuda::ShardMemory&)) {
  for (const auto& to : ranks) {
    for (size_t from = 0; from < ranks.size(); ++from) {
      Require(cudaMemcpyAsync(all(to->argument().memory) + from * bytes,
                              own(ranks[from]->argument().memory), bytes, cudaMemcpyDeviceToDevice,
                              nullptr));
    }
  }
}

template <typename Ranks>
void ExchangeReports(Ranks& ranks) {
  const cuda::ShardArgument& argument = ranks[0]->argument();
  Exchange(
      ranks, static_cast<size_t>(argument.rows.rows) * cuda::ReportBytes(argument.candidates),
      [](const cuda::ShardMemory& m) -> const std::byte* { return m.own_reports; },
      [](const cuda::ShardMemory& m) { return m.all_reports; });
}

template <typename Ranks>
void ExchangeSums(Ranks& ranks) {
  Exchange(
      ranks, static_cast<size_t>(ranks[0]->argument().rows.rows) * sizeof(cuda::DeviceSums),
      [](const cuda::ShardMemory& m) { return reinterpret_cast<const std::byte*>(m.own_sums); },
      [](const cuda::ShardMemory& m) { return reinterpret_cast<std::byte*>(m.all_sums); });
}

// One rank, whose exchange is a copy.
class OneRank final : public cuda::DeviceShardGroup {
 public:
  int32_t rank() const override { return 0; }
  int32_t ranks() const override { return 1; }
  void AllGather(cuda::DeviceArray<const std::byte> own, cuda::DeviceArray<std::byte> all,
                 void* stream) override {
    Require(cudaMemcpyAsync(all.data, own.data, static_cast<size_t>(own.size),
                            cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)));
  }
};

}  // namespace sluice::test
