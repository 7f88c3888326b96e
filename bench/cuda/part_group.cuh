// Ranks of a sharded call one after the other on one GPU, each by itself: the messages of the
// others are there before it runs.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/cuda/graph_replay.cuh"
#include "sluice/cuda/shards.hpp"

namespace sluice::bench {

// A rank with exchanges that put its own message next to those that have come.
class PartGroup final : public cuda::DeviceShardGroup {
 public:
  PartGroup(int32_t rank, int32_t ranks) : rank_(rank), ranks_(ranks) {}

  int32_t rank() const override { return rank_; }
  int32_t ranks() const override { return ranks_; }
  void AllGather(cuda::DeviceArray<const std::byte> own, cuda::DeviceArray<std::byte> all,
                 void* stream) override {
    // A place that no rank has sent to yet is no message.
    if (is_first_round_) {
      RequireCuda(cudaMemsetAsync(all.data, 0, static_cast<size_t>(all.size),
                                  static_cast<cudaStream_t>(stream)));
    }
    RequireCuda(cudaMemcpyAsync(all.data + rank_ * own.size, own.data,
                                static_cast<size_t>(own.size), cudaMemcpyDeviceToDevice,
                                static_cast<cudaStream_t>(stream)));
    messages_.push_back({own, all.data});
  }

  void Begin(int round) {
    messages_.clear();
    is_first_round_ = round == 0;
  }
  // To another rank, what this one has sent since Begin, into the same exchanges.
  void SendTo(const PartGroup& other) const {
    for (size_t i = 0; i < messages_.size(); ++i) {
      const auto& [own, all] = messages_[i];
      RequireCuda(cudaMemcpy(other.messages_[i].all + rank_ * own.size, own.data,
                             static_cast<size_t>(own.size), cudaMemcpyDeviceToDevice));
    }
  }

 private:
  struct Message {
    cuda::DeviceArray<const std::byte> own;
    std::byte* all;
  };

  int32_t rank_;
  int32_t ranks_;
  bool is_first_round_ = false;
  std::vector<Message> messages_;
};

// Calls of all ranks, until each has the messages that the others send where all have theirs.
template <typename Call>
void Meet(std::vector<PartGroup>& groups, Call call) {
  constexpr int kRounds = 3;  // the second exchange is right after a right first one
  for (int round = 0; round < kRounds; ++round) {
    for (size_t r = 0; r < groups.size(); ++r) {
      groups[r].Begin(round);
      call(r);
    }
    RequireCuda(cudaDeviceSynchronize());
    for (const PartGroup& from : groups) {
      for (const PartGroup& to : groups) {
        if (&from != &to) from.SendTo(to);
      }
    }
  }
}

}  // namespace sluice::bench
