// The ranks of a sharded call, one after the other on one GPU: the answers of the whole rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "parallel/device_shards.h"
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
             int32_t ranks, DrawMethod method)
      : batch_(OwnRows(rows, slice), dtype),
        logits_(batch_),
        params_(rows.params),
        keys_(rows.keys),
        workspace_(cuda::ShardWorkspaceBytes(static_cast<int64_t>(rows.size()), candidates, ranks)),
        results_(rows.size()),
        ways_(rows.size()) {
    call_.logits = logits_.view();
    call_.slice = slice;
    call_.params = {params_, keys_};
    call_.method = method;
    call_.candidates = candidates;
    call_.workspace = workspace_;
    argument_ = cuda::ShardArgumentOf(call_, ranks, results_, ways_);
  }

  // Columns that must not be read lie behind the slice's: larger than all.
  static std::vector<std::vector<float>> OwnRows(const RequestRows& rows, const ShardSlice& slice) {
    std::vector<std::vector<float>> own;
    for (const auto& row : rows.values) {
      own.emplace_back(row.begin() + slice.first_id, row.begin() + slice.first_id + slice.tokens);
      own.back().insert(own.back().end(), static_cast<size_t>(slice.first_id % 3), 1e4f);
    }
    return own;
  }

  const cuda::ShardCall& call() const { return call_; }
  const cuda::ShardArgument& argument() const { return argument_; }
  cuda::DeviceArray<TokenResult> result_array() { return results_; }
  cuda::DeviceArray<ShardWay> way_array() { return ways_; }
  std::vector<TokenResult> Results() const { return results_.Get(); }
  std::vector<ShardWay> Ways() const { return ways_.Get(); }

 private:
  Batch batch_;
  DeviceBatch logits_;
  OnDevice<SelectParams> params_;
  OnDevice<NoiseKey> keys_;
  OnDevice<std::byte> workspace_;
  OnDevice<TokenResult> results_;
  OnDevice<ShardWay> ways_;
  cuda::ShardCall call_;
  cuda::ShardArgument argument_;
};

void Exchange(std::vector<std::unique_ptr<DeviceRank>>& ranks, size_t bytes,
              const std::byte* (*own)(const cuda::ShardMemory&),
              std::byte* (*all)(const cuda::ShardMemory&)) {
  for (const auto& to : ranks) {
    for (size_t from = 0; from < ranks.size(); ++from) {
      Require(cudaMemcpyAsync(all(to->argument().memory) + from * bytes,
                              own(ranks[from]->argument().memory), bytes, cudaMemcpyDeviceToDevice,
                              nullptr));
    }
  }
}

void RunAll(std::vector<std::unique_ptr<DeviceRank>>& ranks) {
  const auto rows = static_cast<size_t>(ranks[0]->call().logits.rows);
  for (const auto& rank : ranks) cuda::EnqueueFirst(rank->call(), rank->argument(), nullptr);
  Exchange(
      ranks, rows * cuda::NewsBytes(ranks[0]->call().candidates),
      [](const cuda::ShardMemory& m) -> const std::byte* { return m.own_news; },
      [](const cuda::ShardMemory& m) { return m.all_news; });
  for (const auto& rank : ranks) cuda::LaunchMerge(rank->argument(), nullptr);
  for (const auto& rank : ranks) {
    cuda::LaunchSums(rank->argument(), rank->call().logits.dtype, nullptr);
  }
  Exchange(
      ranks, rows * sizeof(cuda::DeviceSums),
      [](const cuda::ShardMemory& m) { return reinterpret_cast<const std::byte*>(m.own_sums); },
      [](const cuda::ShardMemory& m) { return reinterpret_cast<std::byte*>(m.all_sums); });
  for (const auto& rank : ranks) cuda::LaunchFinish(rank->argument(), nullptr);
  Require(cudaDeviceSynchronize());
}

std::vector<ShardSlice> Slices(int64_t vocab, int32_t ranks, Random& random) {
  std::vector<ShardSlice> slices;
  int64_t first = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    const int64_t left = vocab - first - (ranks - 1 - r);  // a token for each of the others
    const int64_t tokens = r + 1 == ranks ? left : random.Between(1, left);
    slices.push_back({vocab, first, tokens});
    first += tokens;
  }
  return slices;
}

// Rows that are left to the whole row have no token; all others equal the whole row's.
void ExpectEqualWhereDecided(const RequestRows& rows, DType dtype,
                             const std::vector<ShardSlice>& slices, int32_t candidates,
                             DrawMethod method, std::vector<ShardWay>* decided = nullptr) {
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  for (const ShardSlice& slice : slices) {
    ranks.push_back(std::make_unique<DeviceRank>(rows, dtype, slice, candidates,
                                                 static_cast<int32_t>(slices.size()), method));
  }
  RunAll(ranks);
  const Batch whole(rows.values, dtype);
  std::vector<TokenResult> expected = Sampled({whole.view(), rows.params, rows.keys}, method);
  const std::vector<ShardWay> ways = ranks[0]->Ways();
  for (size_t r = 0; r < rows.size(); ++r) {
    if (ways[r] == ShardWay::kGathered) expected[r] = TokenResult{};
  }
  for (const auto& rank : ranks) {
    EXPECT_EQ(rank->Ways(), ways);
    EXPECT_TRUE(SameSequence(rank->Results(), expected));
  }
  if (decided != nullptr) *decided = ways;
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
    ExpectEqualWhereDecided(rows, kAllDTypes[i % 3], Slices(vocab, count, random), candidates,
                            random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf);
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
      ExpectEqualWhereDecided(rows, DType::kF32, Slices(vocab, 3, random), 8, method);
      ASSERT_FALSE(HasFailure()) << hostile.name;
    }
  }
}

TEST_F(ShardsCuda, DecideWhatTheyPromiseWithoutTheWholeRow) {
  Random random(3);
  struct Decided {
    SelectParams params;
    RowKind kind;
    ShardWay way;
  };
  const Decided cases[] = {
      {{.temperature = 0.0f}, RowKind::kNormal, ShardWay::kCandidates},
      {{.top_k = 50}, RowKind::kNormal, ShardWay::kCandidates},
      {{.top_k = 50, .top_p = 0.9f}, RowKind::kNormal, ShardWay::kCandidates},
      {{.top_k = 50, .min_p = 0.1f}, RowKind::kNormal, ShardWay::kCandidates},
      {{.top_p = 0.9f}, RowKind::kPeaked, ShardWay::kCandidates},
      {{.min_p = 0.5f}, RowKind::kPeaked, ShardWay::kCandidates},
      {{.min_p = 1e-6f}, RowKind::kNormal, ShardWay::kSums},
      {{}, RowKind::kNormal, ShardWay::kSums},
      {{.temperature = 1.3f}, RowKind::kFewDistinct, ShardWay::kSums},
      {{.top_p = 0.9f}, RowKind::kNormal, ShardWay::kGathered},
  };
  RequestRows rows;
  std::vector<ShardWay> expected;
  for (const Decided& decided : cases) {
    for (int i = 0; i < 4; ++i) {
      rows.Add(MakeRow(decided.kind, 20000, random), decided.params, random);
      expected.push_back(decided.way);
    }
  }
  for (const DType dtype : kAllDTypes) {
    std::vector<ShardWay> ways;
    ExpectEqualWhereDecided(rows, dtype, Slices(20000, 2, random), 64, DrawMethod::kGumbel, &ways);
    EXPECT_EQ(ways, expected);
  }
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
