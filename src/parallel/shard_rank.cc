#include "parallel/shard_rank.h"

#include <algorithm>
#include <string>

#include "support/check.h"

namespace sluice {
namespace {

// Trivially copyable and without padding, as all that travels: no byte of it is undefined.
struct SetUp {
  ShardSlice slice;
  int64_t candidates;
};

std::string OnRank(int64_t value, int32_t rank) {
  return ToText(value) + " on rank " + std::to_string(rank);
}

void RequireSame(const char* name, int64_t value, int64_t first, int32_t rank) {
  if (value == first) return;
  ThrowInvalid(name, OnRank(value, rank), ToText(first) + ", as on rank 0");
}

std::string TextOf(const ShardHeading& heading) {
  static constexpr const char* kTasks[] = {"the constructor", "Sample", "Sample of hidden states",
                                           "Logprobs", "CompareCalls"};
  const auto task = static_cast<size_t>(heading.task);
  return "exchange " + std::to_string(heading.exchange) + " of " +
         (task < std::size(kTasks) ? kTasks[task] : "something else");
}

}  // namespace

ShardRank::ShardRank(ShardGroup& group, const ShardSlice& slice, int32_t candidates)
    : group_(group) {
  CheckInRange("group.ranks", ranks(), 1, kMostShards);
  CheckInRange("group.rank", rank(), 0, ranks() - 1);
  slices_.assign(static_cast<size_t>(ranks()), slice);
  *Parts<SetUp>(1) = {slice, candidates};
  Exchange();
  // Every rank checks what all have sent, so all throw the same Error.
  int64_t next_id = 0;
  const SetUp first = PartOf<SetUp>(0, 0);
  CheckInRange("slice.vocab", first.slice.vocab, 1, kMaxVocab);
  CheckInRange("candidates", first.candidates, 1, kMaxVocab);
  for (int32_t r = 0; r < ranks(); ++r) {
    const SetUp& other = PartOf<SetUp>(r, 0);
    RequireSame("slice.vocab", other.slice.vocab, first.slice.vocab, r);
    RequireSame("candidates", other.candidates, first.candidates, r);
    if (other.slice.first_id != next_id) {
      ThrowInvalid(
          "slice.first_id", OnRank(other.slice.first_id, r),
          r == 0 ? "0" : ToText(next_id) + ", where rank " + std::to_string(r - 1) + " ends");
    }
    if (other.slice.tokens < 0 || other.slice.tokens > first.slice.vocab - next_id) {
      ThrowInvalid("slice.tokens", OnRank(other.slice.tokens, r),
                   RangeText(0, first.slice.vocab - next_id));
    }
    next_id += other.slice.tokens;
    slices_[static_cast<size_t>(r)] = other.slice;
  }
  if (next_id != first.slice.vocab) {
    ThrowInvalid("slice.tokens", OnRank(slices_.back().tokens, ranks() - 1),
                 ToText(slices_.back().tokens + first.slice.vocab - next_id) +
                     ", up to the end of the vocabulary");
  }
}

void ShardRank::CheckOwn(std::string_view parameter, const LogitsView& own) const {
  CheckLogits(parameter, own);
  CheckInRange(MemberName(parameter, "vocab"), own.vocab, std::max<int64_t>(1, slice().tokens),
               kMaxVocab);
}

std::byte* ShardRank::Message(size_t bytes) {
  message_.assign(sizeof(ShardHeading) + bytes, std::byte{0});
  received_.resize(message_.size() * static_cast<size_t>(ranks()));
  return message_.data() + sizeof(ShardHeading);
}

void ShardRank::Exchange() {
  ++heading_.exchange;
  std::memcpy(message_.data(), &heading_, sizeof heading_);
  group_.AllGather(message_, received_);
  ++traffic_.exchanges;
  traffic_.bytes_sent += static_cast<int64_t>(message_.size());
  ShardHeading first{};
  std::memcpy(&first, received_.data(), sizeof first);
  for (int32_t r = 1; r < ranks(); ++r) {
    ShardHeading other{};
    std::memcpy(&other, MessageOf(r) - sizeof other, sizeof other);
    if (other.task == first.task && other.exchange == first.exchange) continue;
    ThrowInvalid("call", TextOf(other) + " on rank " + std::to_string(r),
                 TextOf(first) + ", as on rank 0");
  }
}

}  // namespace sluice
