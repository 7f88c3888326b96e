// One rank: its slice, those of the others, and the exchanges that it takes part in.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "semantics/widen.h"
#include "sluice/shards.hpp"

namespace sluice {

// The calls of a rank.
enum class ShardTask : uint32_t { kSetUp, kSample, kSampleHidden, kLogprobs, kCompare };

// At the start of every message of a rank.
struct ShardHeading {
  ShardTask task;
  uint32_t exchange;  // of the task, from 1
};

class ShardRank {
 public:
  // Exchanges the slices and checks them, as ShardSampler says.
  ShardRank(ShardGroup& group, const ShardSlice& slice, int32_t candidates);

  int32_t rank() const { return group_.rank(); }
  int32_t ranks() const { return group_.ranks(); }
  const ShardSlice& slice() const { return slices_[static_cast<size_t>(rank())]; }
  const ShardSlice& slice(int32_t rank) const { return slices_[static_cast<size_t>(rank)]; }
  int64_t vocab() const { return slices_[0].vocab; }
  bool Owns(int32_t id) const {
    return id >= slice().first_id && id < slice().first_id + slice().tokens;
  }
  semantics::Row Row(const LogitsView& own, int64_t row) const {
    return {own.Row(row), own.dtype, slice().tokens};
  }
  // Checks a call on this rank's logits.
  void CheckOwn(std::string_view parameter, const LogitsView& own) const;

  void Begin(ShardTask task) { heading_ = {task, 0}; }

  // This rank's message in the next exchange: `bytes` zeros. Its memory, like that of messages
  // received, is good until the next call of this function.
  std::byte* Message(size_t bytes);
  // Throws Error, on all ranks, where one is at another exchange: sizes alone may coincide.
  void Exchange();
  const std::byte* MessageOf(int32_t rank) const {
    return received_.data() + static_cast<size_t>(rank) * message_.size() + sizeof(ShardHeading);
  }

  template <typename Part>
  Part* Parts(int64_t count) {
    static_assert(std::is_trivially_copyable_v<Part>);
    return reinterpret_cast<Part*>(Message(static_cast<size_t>(count) * sizeof(Part)));
  }
  template <typename Part>
  const Part& PartOf(int32_t rank, int64_t index) const {
    return reinterpret_cast<const Part*>(MessageOf(rank))[index];
  }

  ShardTraffic& traffic() { return traffic_; }

 private:
  ShardGroup& group_;
  std::vector<ShardSlice> slices_;
  ShardHeading heading_ = {ShardTask::kSetUp, 0};
  std::vector<std::byte> message_;
  std::vector<std::byte> received_;
  ShardTraffic traffic_;
};

}  // namespace sluice
