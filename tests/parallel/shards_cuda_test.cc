// The ranks of a sharded call, one after the other on one GPU: the answers of the whole rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "tests/parallel/device_ranks.h"
#include "tests/parallel/slices.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

using cuda::ShardExchanges;

// A rank's logits, parameters and memory.
class DeviceRank {
 public:
  DeviceRank(const RequestRows& rows, DType dtype, const ShardSlice& slice, int32_t candidates,
             int32_t ranks, DrawMethod method, cuda::ShardRows kind = cuda::ShardRows::kListed)
      : batch_(OwnColumns(rows.values, slice, slice.first_id % 3), dtype),
        logits_(batch_),
        params_(rows.params),
        keys_(rows.keys),
        workspace_(cuda::ShardWorkspaceBytes(static_cast<int64_t>(rows.size()), candidates, ranks)),
        results_(rows.size()),
        paths_(rows.size()) {
    call_.logits = logits_.view();
    call_.slice = slice;
    call_.params = {params_, keys_};
    call_.method = method;
    call_.candidates = candidates;
    call_.kind = kind;
    call_.workspace = workspace_;
    // What is not written must not be read: as a status this is kBadParam.
    workspace_.Set(std::vector<std::byte>(
        cuda::ShardWorkspaceBytes(static_cast<int64_t>(rows.size()), candidates, ranks),
        std::byte{64}));
    argument_ = cuda::ShardArgumentOf(call_, ranks, results_, paths_);
  }

  const cuda::ShardCall& call() const { return call_; }
  const cuda::ShardArgument& argument() const { return argument_; }
  cuda::DeviceArray<TokenResult> result_array() { return results_; }
  cuda::DeviceArray<ShardPath> way_array() { return paths_; }
  std::vector<TokenResult> Results() const { return results_.Get(); }
  std::vector<ShardPath> Paths() const { return paths_.Get(); }

 private:
  Batch batch_;
  DeviceBatch logits_;
  OnDevice<SelectParams> params_;
  OnDevice<NoiseKey> keys_;
  OnDevice<std::byte> workspace_;
  OnDevice<TokenResult> results_;
  OnDevice<ShardPath> paths_;
  cuda::ShardCall call_;
  cuda::ShardArgument argument_;
};

void RunAll(std::vector<std::unique_ptr<DeviceRank>>& ranks) {
  for (const auto& rank : ranks) cuda::EnqueueFirst(rank->call(), rank->argument(), nullptr);
  ExchangeReports(ranks);
  for (const auto& rank : ranks) cuda::LaunchMerge(rank->argument(), nullptr);
  for (const auto& rank : ranks) {
    cuda::LaunchSums(rank->argument(), rank->call().logits.dtype, nullptr);
  }
  ExchangeSums(ranks);
  for (const auto& rank : ranks) cuda::LaunchFinish(rank->argument(), nullptr);
  Require(cudaDeviceSynchronize());
}

// Rows that are left to the whole row have no token; all others equal the whole row's.
void ExpectEqualWhereDecided(const RequestRows& rows, DType dtype,
                             const std::vector<ShardSlice>& slices, int32_t candidates,
                             DrawMethod method, std::vector<ShardPath>* decided = nullptr,
                             cuda::ShardRows kind = cuda::ShardRows::kListed) {
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  const auto count = static_cast<int32_t>(slices.size());
  for (const ShardSlice& slice : slices) {
    ranks.push_back(
        std::make_unique<DeviceRank>(rows, dtype, slice, candidates, count, method, kind));
  }
  RunAll(ranks);
  const Batch whole(rows.values, dtype);
  std::vector<TokenResult> expected = Sampled({whole.view(), rows.params, rows.keys}, method);
  const std::vector<ShardPath> paths = ranks[0]->Paths();
  for (size_t r = 0; r < rows.size(); ++r) {
    if (paths[r] == ShardPath::kGathered) expected[r] = TokenResult{};
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->Paths(), paths);
    EXPECT_TRUE(SameSequence(rank->Results(), expected));
  }
  if (decided != nullptr) *decided = paths;
}

class ShardsCuda : public DeviceTest {};

TEST_F(ShardsCuda, EqualTheWholeRowForRandomRowsAndParameters) {
  Random random(1);
  for (int i = 0; i < 60; ++i) {
    const int64_t vocab = random.Between(8, i % 4 == 0 ? 5000 : 300);
    const RequestRows rows = RandomRequestRows(40, vocab, random);
    const auto count = static_cast<int32_t>(random.Between(1, 4));
    const auto candidates = static_cast<int32_t>(random.Coin()   ? random.Between(1, 12)
                                                 : random.Coin() ? 64
                                                                 : 1024 / count);
    const DrawMethod method = random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
    ExpectEqualWhereDecided(rows, kAllDTypes[i % 3], FilledSlices(vocab, count, random), candidates,
                            method, nullptr,
                            i % 2 == 0 ? cuda::ShardRows::kAny : cuda::ShardRows::kListed);
    ASSERT_FALSE(HasFailure()) << "case " << i << ", " << count << " ranks";
  }
}

TEST_F(ShardsCuda, EqualTheWholeRowForHostileRows) {
  Random random(2);
  for (const HostileRow& hostile : HostileRows(61)) {
    if (hostile.values.size() < 3) continue;
    const RequestRows rows = ExtremeRequestRows(hostile, random);
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      const auto vocab = static_cast<int64_t>(hostile.values.size());
      ExpectEqualWhereDecided(rows, DType::kF32, FilledSlices(vocab, 3, random), 8, method);
      ASSERT_FALSE(HasFailure()) << hostile.name;
    }
  }
}

TEST_F(ShardsCuda, DecideWhatTheyPromiseWithoutTheWholeRow) {
  Random random(3);
  struct Decided {
    SelectParams params;
    RowKind kind;
    ShardPath way;
  };
  const Decided cases[] = {
      {{.temperature = 0.0f}, RowKind::kNormal, ShardPath::kCandidates},
      {{.top_k = 50}, RowKind::kNormal, ShardPath::kCandidates},
      {{.top_k = 50, .top_p = 0.9f}, RowKind::kNormal, ShardPath::kCandidates},
      {{.top_k = 50, .min_p = 0.1f}, RowKind::kNormal, ShardPath::kCandidates},
      {{.top_p = 0.9f}, RowKind::kPeaked, ShardPath::kCandidates},
      {{.min_p = 0.5f}, RowKind::kPeaked, ShardPath::kCandidates},
      {{.min_p = 1e-6f}, RowKind::kNormal, ShardPath::kSums},
      {{}, RowKind::kNormal, ShardPath::kSums},
      {{.temperature = 1.3f}, RowKind::kFewDistinct, ShardPath::kSums},
      {{.top_p = 0.9f}, RowKind::kNormal, ShardPath::kGathered},
  };
  RequestRows rows;
  std::vector<ShardPath> expected;
  for (const Decided& decided : cases) {
    for (int i = 0; i < 4; ++i) {
      rows.Add(MakeRow(decided.kind, 20000, random), decided.params, random);
      expected.push_back(decided.way);
    }
  }
  for (const DType dtype : kAllDTypes) {
    std::vector<ShardPath> paths;
    ExpectEqualWhereDecided(rows, dtype, FilledSlices(20000, 2, random), 64, DrawMethod::kGumbel,
                            &paths);
    EXPECT_EQ(paths, expected);
  }
}

// Rows of one kind, with logits that leave many tokens that may win or one.
RequestRows RowsToDrawFromEverything(int64_t vocab, Random& random) {
  RequestRows rows;
  for (const RowKind kind : kAllRowKinds) {
    for (const float temperature : {0.01f, 0.7f, 1.0f, 5.0f}) {
      rows.Add(MakeRow(kind, vocab, random), {.temperature = temperature}, random);
    }
  }
  return rows;
}

TEST_F(ShardsCuda, DrawFromEverythingInOneExchangeAndInTwo) {
  Random random(5);
  for (int i = 0; i < 24; ++i) {
    const int64_t vocab = i % 3 == 0 ? random.Between(20000, 70000) : random.Between(3, 4000);
    const RequestRows rows = RowsToDrawFromEverything(vocab, random);
    std::vector<ShardSlice> slices = FilledSlices(vocab, i % 3 + 1, random);
    for (const cuda::ShardRows kind :
         {cuda::ShardRows::kDrawn, cuda::ShardRows::kListed, cuda::ShardRows::kAny}) {
      std::vector<ShardPath> paths;
      ExpectEqualWhereDecided(rows, kAllDTypes[i % 3], slices, i % 2 == 0 ? 16 : 1,
                              DrawMethod::kGumbel, &paths, kind);
      EXPECT_EQ(std::count(paths.begin(), paths.end(), ShardPath::kGathered), 0);
      ASSERT_FALSE(HasFailure()) << "case " << i << ", kind " << static_cast<int>(kind);
    }
  }
}

TEST_F(ShardsCuda, TellAFewTokensOfARowThatIsDrawnFromEverything) {
  Random random(6);
  const RequestRows rows = RowsToDrawFromEverything(60000, random);
  for (const ShardSlice& slice : FilledSlices(60000, 2, random)) {
    DeviceRank rank(rows, DType::kBf16, slice, 16, 2, DrawMethod::kGumbel, cuda::ShardRows::kDrawn);
    cuda::EnqueueFirst(rank.call(), rank.argument(), nullptr);
    Require(cudaDeviceSynchronize());
    const size_t bytes = cuda::ReportBytes(16);
    std::vector<std::byte> report(rows.size() * bytes);
    Require(cudaMemcpy(report.data(), rank.argument().memory.own_reports, report.size(),
                       cudaMemcpyDeviceToHost));
    size_t incomplete = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      cuda::DeviceDrawReport row;
      std::memcpy(&row, report.data() + r * bytes, sizeof row);
      incomplete += row.ties == cuda::DeviceDrawReport::kIncomplete ? 1 : 0;
    }
    EXPECT_LE(incomplete, rows.size() / 20);
  }
}

TEST_F(ShardsCuda, LeaveOtherRowsOfACallOfDrawnOnesToTheWholeRow) {
  Random random(7);
  RequestRows rows;
  for (const SelectParams& params :
       {SelectParams{.top_k = 5}, SelectParams{}, SelectParams{.temperature = -1.0f}}) {
    rows.Add(MakeRow(RowKind::kNormal, 500, random), params, random);
  }
  std::vector<ShardPath> paths;
  ExpectEqualWhereDecided(rows, DType::kF32, FilledSlices(500, 2, random), 8, DrawMethod::kGumbel,
                          &paths, cuda::ShardRows::kDrawn);
  EXPECT_EQ(paths, (std::vector{ShardPath::kGathered, ShardPath::kSums, ShardPath::kStatus}));
}

TEST_F(ShardsCuda, AreCapturedInAGraphAndGatherWhatIsLeft) {
  Random random(4);
  RequestRows rows = RandomRequestRows(60, 3000, random);
  const ShardSlice slice{3000, 0, 3000};
  DeviceRank rank(rows, DType::kBf16, slice, 64, 1, DrawMethod::kGumbel);
  OneRank group;
  cudaStream_t stream;
  Require(cudaStreamCreate(&stream));
  const OnDevice<std::byte> memory(cuda::GatheredWorkspaceBytes(rank.call(), 1, 3000));
  cudaGraph_t graph;
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cuda::Sample(rank.call(), group, rank.result_array(), rank.way_array(), stream);
  cuda::SampleGathered(rank.call(), group, {&slice, 1}, memory, rank.result_array(),
                       rank.way_array(), stream);
  Require(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  Require(cudaGraphInstantiate(&executable, graph, 0));
  for (int i = 0; i < 3; ++i) Require(cudaGraphLaunch(executable, stream));
  Require(cudaStreamSynchronize(stream));
  const Batch whole(rows.values, DType::kBf16);
  EXPECT_TRUE(SameSequence(rank.Results(), Sampled({whole.view(), rows.params, rows.keys})));
  Require(cudaGraphExecDestroy(executable));
  Require(cudaGraphDestroy(graph));
  Require(cudaStreamDestroy(stream));
}

}  // namespace
}  // namespace sluice::test
