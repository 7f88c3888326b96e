#include "topk/topk_plan.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>

#include "cuda/row_launch.h"

namespace sluice::cuda {
namespace {

// Up to so many rows, from so many columns on: the team of a row. The first that fits is taken.
struct Policy {
  int64_t most_rows;
  int64_t least_columns;
  TeamShape shape;
};
// Measured on an H200 with k = 2048, fp32, 1, 16, 64 and 128 rows of 8192 to 524288 columns: all
// shapes are within a table that `sluice_cuda_topk --plans all` prints, the best of a cell is here.
constexpr Policy kPolicies[] = {
    {8, 24576, {8, 512}},            // one row of 65536: 6.9 us
    {30, 16384, {4, 512}},           // 16 rows of 524288: 14.0, 20.0 with 8 (an earlier version)
    {66, 393216, {2, 1024}},         // with the narrower guess
    {66, 16384, {2, 512}},           // 64 rows of 131072: 13.2, 14.6 with 1024 threads
    {INT64_MAX, 393216, {2, 1024}},  // 128 rows of 524288: 84.7
    {INT64_MAX, 49152, {1, 1024}},   // 128 rows of 65536: 14.7, 15.2 with 512 threads
    {INT64_MAX, 16384, {1, 512}},    // 128 rows of 32768: 12.2
    {INT64_MAX, 0, {1, 1024}},       // short rows
};

constexpr int32_t kLeastCandidates = 4096;  // room for fewer would make guesses fail
constexpr int64_t kWideRow = 98304;         // of which a sample has so little that guesses are wide
constexpr int64_t kShortRow = 8192;         // with scores that are all candidates

int32_t CapacityFor(int64_t columns, int64_t k) {
  if (columns <= kLeastCandidates) return kLeastCandidates;
  if (columns <= kShortRow) return static_cast<int32_t>(kShortRow);
  const uint64_t wanted = std::bit_ceil(static_cast<uint64_t>(2 * std::min(k, columns)));
  if (wanted > kMostCandidates) return columns <= kMostCandidates ? kMostCandidates : 0;
  return std::max(columns >= kWideRow ? 2 * kLeastCandidates : kLeastCandidates,
                  static_cast<int32_t>(wanted));
}

}  // namespace

int64_t WordsOfBlock(int64_t columns, int64_t blocks) {
  constexpr int64_t kMostSkipped = 7;  // places before the row in its first vector
  const int64_t tiles = (columns + kMostSkipped + kTileScores - 1) / kTileScores;
  return (tiles + blocks - 1) / blocks * kTileWords;
}

TopkPlan PlanFor(const TopkInput& input, SharedBytesOf shared_bytes) {
  const DeviceShape device = CurrentDeviceShape();
  const int64_t rows = input.scores.rows;
  const int64_t columns = input.scores.vocab;
  TeamShape shape = kPolicies[std::size(kPolicies) - 1].shape;
  if (device.has_clusters) {
    shape = std::find_if(std::begin(kPolicies), std::end(kPolicies), [&](const Policy& policy) {
              return rows <= policy.most_rows && columns >= policy.least_columns;
            })->shape;
  }
  const TopkGuess guess = input.thresholds.size == 0 ? TopkGuess::kSample : TopkGuess::kThreshold;
  TopkPlan plan{guess, shape.blocks, shape.threads, CapacityFor(columns, input.k)};
  auto fits = [&] {
    return shared_bytes(WordsOfBlock(columns, plan.blocks), plan.capacity) <=
           device.most_shared_bytes;
  };
  while (device.has_clusters && plan.blocks < 8 && !fits()) plan.blocks *= 2;
  if (!fits()) plan.capacity = 0;
  return plan;
}

void CheckPlan(const TopkPlan& plan, const TopkInput& input, SharedBytesOf shared_bytes) {
  const DeviceShape device = CurrentDeviceShape();
  CheckInRange("plan.guess", static_cast<int64_t>(plan.guess), 0, 3);
  const auto is_power = [](int32_t n) {
    return n > 0 && std::has_single_bit(static_cast<uint32_t>(n));
  };
  const int64_t most_blocks = device.has_clusters && input.scores.rows <= INT32_MAX / 8 ? 8 : 1;
  if (!is_power(plan.blocks) || plan.blocks > most_blocks) {
    ThrowInvalid("plan.blocks", ToText(int64_t{plan.blocks}),
                 "a power of two in " + RangeText(1, most_blocks));
  }
  if (plan.threads != 512 && plan.threads != 1024) {
    ThrowInvalid("plan.threads", ToText(int64_t{plan.threads}), "512 or 1024");
  }
  if (plan.capacity != 0 && (!is_power(plan.capacity) || plan.capacity > kMostCandidates)) {
    ThrowInvalid("plan.capacity", ToText(int64_t{plan.capacity}),
                 "0 or a power of two up to " + ToText(int64_t{kMostCandidates}));
  }
  const size_t bytes = shared_bytes(WordsOfBlock(input.scores.vocab, plan.blocks), plan.capacity);
  if (plan.capacity != 0 && bytes > device.most_shared_bytes) {
    ThrowInvalid("plan.capacity", ToText(int64_t{plan.capacity}),
                 "less: with it a block takes " + ToText(static_cast<int64_t>(bytes)) +
                     " bytes of shared memory, of " +
                     ToText(static_cast<int64_t>(device.most_shared_bytes)));
  }
}

}  // namespace sluice::cuda
