// Log-probabilities of rows whose vocabulary is split, the ranks one after the other on one GPU:
// those of the whole rows.
#include <gtest/gtest.h>

#include <memory>

#include "parallel/cuda/device_logprobs.h"
#include "tests/parallel/slices.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr LogprobMode kModes[] = {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits,
                                  LogprobMode::kProcessedLogprobs, LogprobMode::kProcessedLogits};

struct Answer {
  std::vector<TokenResult> results;
  std::vector<uint64_t> kept_masses;
  std::vector<int32_t> ids;
  std::vector<float> values;
};

class DeviceRank {
 public:
  DeviceRank(const RequestRows& rows, const std::vector<TokenResult>& drawn, DType dtype,
             LogprobMode mode, int32_t width, const ShardSlice& slice, int32_t rank, int32_t ranks)
      : batch_(OwnColumns(rows.values, slice, slice.first_id % 3), dtype),
        logits_(batch_),
        params_(rows.params),
        results_(drawn),
        kept_masses_(rows.size()),
        ids_(rows.size() * static_cast<size_t>(std::max(width, 1))),
        values_(rows.size() * static_cast<size_t>(std::max(width, 1))),
        workspace_(cuda::ShardLogprobWorkspaceBytes(std::ssize(drawn), width, ranks)) {
    call_.logits = logits_.view();
    call_.slice = slice;
    call_.params.params = params_;
    call_.mode = mode;
    call_.kept_masses = kept_masses_;
    if (width > 0) call_.lists = {width, ids_, values_};
    call_.workspace = workspace_;
    argument_ = cuda::ArgumentOf(call_, rank, ranks, results_);
  }

  const cuda::ShardLogprobCall& call() const { return call_; }
  const cuda::ShardLogprobArgument& argument() const { return argument_; }
  Answer Get() const {
    Answer answer{results_.Get(), kept_masses_.Get(), {}, {}};
    if (call_.lists.width > 0) answer.ids = ids_.Get(), answer.values = values_.Get();
    return answer;
  }

 private:
  Batch batch_;
  DeviceBatch logits_;
  OnDevice<SelectParams> params_;
  OnDevice<TokenResult> results_;
  OnDevice<uint64_t> kept_masses_;
  OnDevice<int32_t> ids_;
  OnDevice<float> values_;
  OnDevice<std::byte> workspace_;
  cuda::ShardLogprobCall call_;
  cuda::ShardLogprobArgument argument_;
};

using Ranks = std::vector<std::unique_ptr<DeviceRank>>;

template <typename Part>
void Exchange(const Ranks& ranks, size_t bytes, Part* cuda::LogprobMemory::* own,
              Part* cuda::LogprobMemory::* all) {
  for (const auto& to : ranks) {
    for (size_t from = 0; from < ranks.size(); ++from) {
      Require(cudaMemcpyAsync(
          reinterpret_cast<std::byte*>(to->argument().memory.*all) + from * bytes,
          ranks[from]->argument().memory.*own, bytes, cudaMemcpyDeviceToDevice, nullptr));
    }
  }
}

void RunAll(const Ranks& ranks) {
  const cuda::ShardLogprobArgument& argument = ranks[0]->argument();
  const auto rows = static_cast<size_t>(argument.rows.rows);
  const DType dtype = ranks[0]->call().logits.dtype;
  for (const auto& rank : ranks) cuda::LaunchLogprobReports(rank->argument(), dtype, nullptr);
  Exchange(ranks, rows * sizeof(cuda::LogprobReport), &cuda::LogprobMemory::own_reports,
           &cuda::LogprobMemory::all_reports);
  for (const auto& rank : ranks) cuda::LaunchLogprobSums(rank->argument(), dtype, nullptr);
  Exchange(ranks, rows * cuda::LogprobSumsBytes(argument.listed), &cuda::LogprobMemory::own_sums,
           &cuda::LogprobMemory::all_sums);
  for (const auto& rank : ranks) cuda::LaunchLogprobFinish(rank->argument(), nullptr);
  Require(cudaDeviceSynchronize());
}

// As Logprobs on the device has it, which tests of its own compare with the definition.
Answer OfTheWholeRows(const RequestRows& rows, const std::vector<TokenResult>& drawn, DType dtype,
                      LogprobMode mode, int32_t width) {
  const ShardSlice slice{std::ssize(rows.values[0]), 0, std::ssize(rows.values[0])};
  const DeviceRank whole(rows, drawn, dtype, mode, width, slice, 0, 1);
  const cuda::ShardLogprobCall& call = whole.call();
  cuda::Logprobs(call.logits, call.params, mode, {whole.argument().results, std::ssize(drawn)},
                 call.kept_masses, nullptr, call.lists);
  Require(cudaDeviceSynchronize());
  return whole.Get();
}

void ExpectEqualToTheWholeRows(const RequestRows& rows, DType dtype, LogprobMode mode,
                               int32_t width, const std::vector<ShardSlice>& slices) {
  const Batch batch(rows.values, dtype);
  std::vector<TokenResult> drawn = Sampled({batch.view(), rows.params, rows.keys});
  const Answer expected = OfTheWholeRows(rows, drawn, dtype, mode, width);
  Ranks ranks;
  const auto count = static_cast<int32_t>(slices.size());
  for (int32_t r = 0; r < count; ++r) {
    ranks.push_back(std::make_unique<DeviceRank>(rows, drawn, dtype, mode, width,
                                                 slices[static_cast<size_t>(r)], r, count));
  }
  RunAll(ranks);
  for (const auto& rank : ranks) {
    const Answer answer = rank->Get();
    EXPECT_TRUE(SameSequence(answer.results, expected.results));
    EXPECT_EQ(answer.kept_masses, expected.kept_masses);
    EXPECT_EQ(answer.ids, expected.ids);
    EXPECT_TRUE(SameSequence(answer.values, expected.values));
  }
}

class ShardLogprobsCuda : public DeviceTest {};

TEST_F(ShardLogprobsCuda, EqualTheWholeRowForRandomRowsAndParameters) {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const int64_t vocab = random.Between(8, i % 4 == 0 ? 5000 : 300);
    const RequestRows rows = RandomRequestRows(30, vocab, random);
    const int32_t width = i % 3 == 0   ? 0
                          : i % 3 == 1 ? 1
                                       : static_cast<int32_t>(random.Between(2, 129));
    ExpectEqualToTheWholeRows(
        rows, kAllDTypes[i % 3], kModes[i % 4], width,
        FilledSlices(vocab, static_cast<int32_t>(random.Between(1, 4)), random));
    ASSERT_FALSE(HasFailure()) << "case " << i;
  }
}

TEST_F(ShardLogprobsCuda, EqualTheWholeRowForHostileRows) {
  Random random(2);
  for (const HostileRow& hostile : HostileRows(61)) {
    if (hostile.values.size() < 3) continue;
    const RequestRows rows = ExtremeRequestRows(hostile, random);
    const auto vocab = static_cast<int64_t>(hostile.values.size());
    for (const LogprobMode mode : kModes) {
      ExpectEqualToTheWholeRows(rows, DType::kF32, mode, 5, FilledSlices(vocab, 3, random));
      ASSERT_FALSE(HasFailure()) << hostile.name;
    }
  }
}

// Ties at both boundaries of a Cut lie on several ranks.
TEST_F(ShardLogprobsCuda, EqualTheWholeRowWhereEverythingTies) {
  Random random(3);
  for (int i = 0; i < 40; ++i) {
    const int64_t vocab = random.Between(4, 60);
    RequestRows rows;
    for (int r = 0; r < 10; ++r) {
      std::vector<float> row;
      for (int64_t id = 0; id < vocab; ++id) row.push_back(random.Coin(0.2) ? 1.0f : 2.0f);
      rows.Add(row, RandomSwitchedParams(vocab, random), random);
    }
    ExpectEqualToTheWholeRows(rows, DType::kF32, kModes[i % 4], 6, FilledSlices(vocab, 3, random));
    ASSERT_FALSE(HasFailure()) << "case " << i;
  }
}

}  // namespace
}  // namespace sluice::test
