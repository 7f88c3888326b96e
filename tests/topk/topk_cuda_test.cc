// topk on a GPU gives what the reference gives, bit for bit, whatever the rows, the hint and the
// plan; and its way out of every plateau is taken.
#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/bad_input.h"
#include "tests/support/rows.h"
#include "tests/topk/device_topk.h"

namespace sluice::test {
namespace {

using cuda::TopkGuess;
using cuda::TopkPlan;
using cuda::TopkWay;
using cuda::TopkWork;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class CudaTopk : public DeviceTest, public ::testing::WithParamInterface<DType> {};

std::vector<TopkPlan> EveryPlan(int32_t capacity) {
  std::vector<TopkPlan> plans;
  for (const TopkGuess guess :
       {TopkGuess::kSample, TopkGuess::kHint, TopkGuess::kSecant, TopkGuess::kThreshold}) {
    for (const int32_t blocks : {1, 2, 4, 8}) {
      for (const int32_t threads : {512, 1024}) plans.push_back({guess, blocks, threads, capacity});
    }
  }
  return plans;
}

TEST_P(CudaTopk, EqualsTheReferenceOnRandomRaggedSpeculativeRows) {
  Random random(51);
  const std::vector<TopkPlan> plans = EveryPlan(256);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t columns = 1 + static_cast<int64_t>(9999 * u * u);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of " << columns << " columns");
    Request request{.k = static_cast<int32_t>(1 + random.Below(random.Coin() ? 100 : columns + 9)),
                    .next_n = static_cast<int32_t>(random.Between(1, 4)),
                    .sorted = random.Coin()};
    const int64_t requests = random.Between(1, i % 10 == 0 ? 40 : 4);
    std::vector<std::vector<float>> rows;
    for (int64_t r = 0; r < requests * request.next_n; ++r) {
      rows.push_back(MakeRow(kAllRowKinds[random.Below(std::size(kAllRowKinds))], columns, random));
    }
    if (random.Coin()) {
      for (int64_t r = 0; r < requests; ++r) {
        request.lengths.push_back(static_cast<int32_t>(random.Below(columns + 1)));
      }
    }
    if (random.Coin()) {
      request.hint_columns = static_cast<int32_t>(random.Between(1, 300));
      request.hint_shift = static_cast<int32_t>(random.Between(-3, 3));
      for (int64_t h = 0; h < requests * request.hint_columns; ++h) {
        request.hint.push_back(static_cast<int32_t>(random.Between(-9, columns + 9)));
      }
    }
    if (random.Coin()) {
      for (size_t r = 0; r < rows.size(); ++r) {
        request.thresholds.push_back(random.Coin() ? rows[r][0] : kNan);
      }
    }
    const Batch batch(rows, GetParam());
    const DeviceBatch on_device(batch,
                                random.Coin() ? RowStartAt::kAligned : RowStartAt::kOneElementOn);
    const Answer expected = Reference(batch.view(), request);
    ExpectSame(OnGpu(on_device.view(), request), expected);
    TopkPlan plan = random.Pick(plans);
    SCOPED_TRACE(testing::Message() << plan.blocks << " blocks of " << plan.threads);
    ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
    plan.capacity = random.Coin() ? 0 : 1;
    ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
  }
}

TEST_P(CudaTopk, EqualsTheReferenceOnHostileRows) {
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    const Batch batch({hostile.values, hostile.values}, GetParam());
    const DeviceBatch on_device(batch);
    for (const int32_t k : {1, 2, 7, 66, 67, 68, 300}) {
      for (const bool sorted : {false, true}) {
        const Request request{.k = k, .sorted = sorted};
        const Answer expected = Reference(batch.view(), request);
        ExpectSame(OnGpu(on_device.view(), request), expected);
        for (const int32_t capacity : {1, 64}) {
          const TopkPlan plan{TopkGuess::kSample, 2, 512, capacity};
          ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
        }
      }
    }
  }
}

// Wide enough for guesses; the same values at the front of a row of padding.
TEST_P(CudaTopk, EqualsTheReferenceOnHostileRowsOfGuesses) {
  for (const HostileRow& hostile : HostileRows(20000)) {
    SCOPED_TRACE(hostile.name);
    const Batch batch({hostile.values}, GetParam());
    const DeviceBatch on_device(batch);
    for (const int32_t k : {1, 500, 2048}) {
      const Request request{.k = k};
      const Answer expected = Reference(batch.view(), request);
      ExpectSame(OnGpu(on_device.view(), request), expected);
      const TopkPlan plan{TopkGuess::kSample, 8, 512, 4096};
      ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
    }
  }
}

TEST_P(CudaTopk, EqualsTheReferenceOnEveryDistributionAtFullSize) {
  for (const bench::NamedScores& named : bench::kScores) {
    SCOPED_TRACE(named.name);
    // Beyond fp16: half of it is +inf, where nothing is larger.
    if (GetParam() == DType::kF16 && named.scores == bench::Scores::kBig) continue;
    const int64_t columns = 131072 - 3;
    const Batch batch(RowsOf(named.scores, 2, columns), GetParam());
    const DeviceBatch on_device(batch);
    for (const int32_t k : {512, 2048}) {
      const Request request{.k = k, .lengths = {131072 - 3, 70001}};
      const Answer expected = Reference(batch.view(), request);
      Answer first;
      for (const int32_t blocks : {1, 2, 4, 8}) {
        SCOPED_TRACE(testing::Message() << blocks << " blocks");
        const TopkPlan plan{TopkGuess::kSample, blocks, blocks == 1 ? 1024 : 512, 4096};
        Answer answer = OnGpu(on_device.view(), request, &plan);
        ExpectSame(answer, expected);
        for (const TopkWork& work : answer.work) {
          EXPECT_NE(work.way, TopkWay::kDefinition) << int{work.reads} << " reads";
        }
      }
      ExpectSame(OnGpu(on_device.view(), request), expected);
    }
  }
}

// Rows that a block holds in registers, and those just beyond.
TEST_P(CudaTopk, EqualsTheReferenceOnEveryDistributionOfShortRows) {
  for (const bench::NamedScores& named : bench::kScores) {
    SCOPED_TRACE(named.name);
    for (const int64_t columns : {8192, 8191, 4097, 700}) {
      const Batch batch(RowsOf(named.scores, 2, columns), GetParam());
      const auto length = static_cast<int32_t>(columns);
      for (const RowStartAt start : {RowStartAt::kAligned, RowStartAt::kOneElementOn}) {
        const DeviceBatch on_device(batch, start);
        for (const int32_t k : {1, 512, 2048, length - 1, length}) {
          SCOPED_TRACE(testing::Message() << k << " of " << columns);
          const Request request{.k = k, .lengths = {length, length / 2}};
          ExpectSame(OnGpu(on_device.view(), request), Reference(batch.view(), request));
        }
      }
    }
  }
}

// The way that each distribution takes by its nature: a plateau is one whatever the plan.
TEST_P(CudaTopk, PlateausAreDecidedByPlaceAndCounted) {
  if (GetParam() != DType::kF32) GTEST_SKIP() << "rounding makes plateaus of others";
  for (const bench::NamedScores& named : bench::kScores) {
    SCOPED_TRACE(named.name);
    const Batch batch(RowsOf(named.scores, 1, 131072));
    const DeviceBatch on_device(batch, RowStartAt::kAligned);
    const TopkPlan plan{TopkGuess::kSample, 4, 512, 4096};
    const Answer answer = OnGpu(on_device.view(), {.k = 2048}, &plan);
    const bool is_plateau =
        named.scores == bench::Scores::kConstant || named.scores == bench::Scores::kRelu99;
    EXPECT_EQ(answer.work[0].way, is_plateau ? TopkWay::kPlateau : TopkWay::kCandidates);
    if (is_plateau) {
      EXPECT_EQ(answer.work[0].reads, 1);
    }
    const TopkPlan by_definition{TopkGuess::kSample, 4, 512, 0};
    const Answer other = OnGpu(on_device.view(), {.k = 2048}, &by_definition);
    EXPECT_EQ(other.work[0].way, TopkWay::kDefinition);
    ExpectSame(other, answer);
  }
}

// The first ties are looked for at the start of a row, as far as a sample says; here they are
// elsewhere, or fewer than it saw.
TEST_P(CudaTopk, PlateausAreFoundWhereverTheyLie) {
  const int64_t columns = 100000;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<std::vector<float>> rows(4, std::vector<float>(at(columns), -3.0f));
  for (int64_t i = 0; i < columns; ++i) {
    if (i >= columns * 7 / 10) rows[0][at(i)] = 1.0f;                 // at the back
    if (i >= columns - 5000 && i % 2 == 0) rows[1][at(i)] = 1.0f;     // some more than are wanted
    if (i % 3 != 0) rows[2][at(i)] = i % 100 == 1 ? 2.0f : 0.0f;      // with larger ones between
    if (i % 512 < 64) rows[3][at(i)] = i % 512 == 63 ? -kInf : 0.0f;  // in pieces
  }
  const Batch batch(rows, GetParam());
  const DeviceBatch on_device(batch, RowStartAt::kOneElementOn);
  for (const int32_t k : {500, 2048, 2499, 2500, 2501, 4096}) {
    SCOPED_TRACE(k);
    const Request request{.k = k};
    const Answer expected = Reference(batch.view(), request);
    for (TopkPlan plan : EveryPlan(4096)) {
      plan.guess = TopkGuess::kSample;
      ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
    }
  }
}

TEST_P(CudaTopk, AHintNeverChangesTheAnswer) {
  const int64_t columns = 50000;
  const Batch batch(RowsOf(bench::Scores::kNormal, 2, columns), GetParam());
  const DeviceBatch on_device(batch);
  Request request{.k = 512};
  const Answer expected = Reference(batch.view(), request);
  Random random(53);
  request.hint_columns = 700;
  auto filled = [&](auto make) {
    std::vector<int32_t> hint(1400);
    std::generate(hint.begin(), hint.end(), make);
    return hint;
  };
  const auto any = [&] { return static_cast<int32_t>(random.Below(columns)); };
  std::vector<std::vector<int32_t>> hints = {
      filled(any),
      filled([] { return 17; }),
      filled([] { return -1; }),
      filled([] { return INT32_MAX; }),
      filled([] { return INT32_MIN; }),
      filled([&] { return static_cast<int32_t>(columns); }),
      filled([&] { return expected.indices[random.Below(1024)]; }),
  };
  for (const std::vector<int32_t>& hint : hints) {
    request.hint = hint;
    for (const int32_t shift : {0, 1, -1, INT32_MAX, INT32_MIN}) {
      request.hint_shift = shift;
      for (const TopkPlan& plan : EveryPlan(4096)) {
        ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
      }
    }
  }
}

// The mean of two hinted scores is the threshold, so it leaves as many scores as its rank says.
// What is counted decides, to the last of them, whatever was guessed.
TEST_P(CudaTopk, AThresholdIsBelievedExactlyWhenItsCountFits) {
  if (GetParam() != DType::kF32) GTEST_SKIP() << "rounding makes ties";
  const int32_t columns = 50000, k = 1024;
  std::vector<float> row(static_cast<size_t>(columns));
  std::vector<int32_t> index_of_rank(static_cast<size_t>(columns) + 1);
  for (int32_t i = 0; i < columns; ++i) {
    const auto place = static_cast<int32_t>(int64_t{i} * 7919 % columns);  // all different
    row[static_cast<size_t>(i)] = static_cast<float>(place);
    index_of_rank[static_cast<size_t>(columns - place)] = i;
  }
  const Batch batch({row});
  const DeviceBatch on_device(batch);
  Request request{.k = k, .hint_columns = 2};
  const Answer expected = Reference(batch.view(), {.k = k});
  for (const int32_t capacity : {4096, 8192}) {
    // 4096: what the registers of 512 threads hold.
    for (const int32_t rank : {1, k - 1, k, k + 1, 4095, 4096, 4097, 4300, capacity - 1, capacity,
                               capacity + 1, columns}) {
      const bool has_mean = 2 * rank - 1 <= columns;
      request.hint = {index_of_rank[static_cast<size_t>(has_mean ? 1 : rank)],
                      index_of_rank[static_cast<size_t>(has_mean ? 2 * rank - 1 : rank)]};
      for (const int32_t blocks : {1, 2, 4, 8}) {
        SCOPED_TRACE(testing::Message()
                     << "rank " << rank << ", " << blocks << " blocks, room for " << capacity);
        const TopkPlan plan{TopkGuess::kHint, blocks, 512, capacity};
        const Answer answer = OnGpu(on_device.view(), request, &plan);
        ExpectSame(answer, expected);
        const bool fits = rank >= k && rank <= capacity;
        EXPECT_EQ(answer.work[0].reads, fits ? 1 : 2);
        if (fits) {
          EXPECT_EQ(answer.work[0].candidates, rank);
        }
      }
    }
  }
}

// More of them than its threads can hold, and the largest ones in one tile, where a warp can hold
// 256: elsewhere are more than k, which are not the answer.
TEST_P(CudaTopk, OneWarpMayHaveManyCandidates) {
  const int64_t columns = 40000;
  std::vector<float> row(static_cast<size_t>(columns));
  for (int64_t i = 0; i < columns; ++i) {
    const int64_t step = i * 7919 % 16000;
    row[static_cast<size_t>(i)] = -1.0f - static_cast<float>(step % 64);
    if (step < 1000) row[static_cast<size_t>(i)] = 1.0f + static_cast<float>(step) / 1000;
    if (i >= 20480 && i < 21080) row[static_cast<size_t>(i)] = 2.0f + static_cast<float>(i % 97);
  }
  const Batch batch({row}, GetParam());
  const DeviceBatch on_device(batch);
  const Request request{.k = 2048};
  const Answer expected = Reference(batch.view(), request);
  for (const int32_t blocks : {1, 2, 4, 8}) {
    for (const int32_t threads : {512, 1024}) {
      const TopkPlan plan{TopkGuess::kSample, blocks, threads, 4096};
      ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
    }
  }
}

// More of them than its threads can hold.
TEST_P(CudaTopk, OneBlockMayHaveAllCandidates) {
  const int64_t columns = 60000;
  std::vector<float> row(static_cast<size_t>(columns), -1.0f);
  for (int64_t i = columns - 7000; i < columns; ++i) {
    row[static_cast<size_t>(i)] = static_cast<float>(i * 7919 % 7000);
  }
  const Batch batch({row}, GetParam());
  const DeviceBatch on_device(batch);
  const Request request{.k = 4500};
  const Answer expected = Reference(batch.view(), request);
  for (const int32_t blocks : {1, 2, 4, 8}) {
    const TopkPlan plan{TopkGuess::kSample, blocks, 512, 8192};
    ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
  }
}

TEST_P(CudaTopk, ANanBeforeTheLengthIsAStatusAndOneBehindItIsNot) {
  for (const int64_t columns : {40, 30000}) {
    std::vector<std::vector<float>> rows = RowsOf(bench::Scores::kNormal, 4, columns);
    const auto last = static_cast<size_t>(columns - 1);
    rows[0][last] = rows[1][last / 2] = rows[2][0] = kNan;
    std::fill(rows[3].begin() + static_cast<ptrdiff_t>(last / 3), rows[3].end(), kNan);
    rows[1][last / 2] = -kNan;
    const Batch batch(rows, GetParam());
    const DeviceBatch on_device(batch);
    for (const int32_t behind : {0, 1}) {
      const auto length = static_cast<int32_t>(columns - behind);
      for (const bool sorted : {false, true}) {
        const Request request{
            .k = 20, .lengths = {length, length, length, length}, .sorted = sorted};
        const Answer expected = Reference(batch.view(), request);
        EXPECT_EQ(expected.statuses[0], behind == 1 ? RowStatus::kOk : RowStatus::kNanInput);
        ExpectSame(OnGpu(on_device.view(), request), expected);
        for (const int32_t capacity : {0, 32, 64}) {
          const TopkPlan plan{TopkGuess::kSample, 2, 512, capacity};
          ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
        }
      }
    }
  }
}

TEST_P(CudaTopk, InfinitiesAreOrdinaryScores) {
  std::vector<float> row(20000, -kInf);
  for (size_t i = 0; i < row.size(); i += 3) row[i] = kInf;
  const Batch batch({row, std::vector<float>(20000, kInf), std::vector<float>(20000, -kInf)},
                    GetParam());
  const DeviceBatch on_device(batch);
  for (const int32_t k : {1, 2048, 6667, 6668, 20000, 20001}) {
    for (const bool sorted : {false, true}) {
      const Request request{.k = k, .sorted = sorted};
      ExpectSame(OnGpu(on_device.view(), request), Reference(batch.view(), request));
    }
  }
}

TEST_P(CudaTopk, AnyKUpToTheWidthAndBeyond) {
  const int64_t columns = 40000;
  std::vector<std::vector<float>> rows = RowsOf(bench::Scores::kNormal, 1, columns);
  rows.push_back(RowsOf(bench::Scores::kNarrowest, 1, columns)[0]);
  const Batch batch(rows, GetParam());
  const DeviceBatch on_device(batch);
  for (const int32_t k : {1, 3000, 4096, 4097, 8192, 8193, 20000, 39999, 40000, 40001}) {
    SCOPED_TRACE(k);
    for (const bool sorted : {false, true}) {
      const Request request{.k = k, .sorted = sorted};
      ExpectSame(OnGpu(on_device.view(), request), Reference(batch.view(), request));
    }
  }
}

TEST_P(CudaTopk, ALengthOutOfRangeIsAStatusOfItsRowsAlone) {
  const Batch batch(RowsOf(bench::Scores::kNormal, 8, 100), GetParam());
  const DeviceBatch on_device(batch);
  const Request request{.k = 3, .lengths = {-1, 100, 101, 0}, .next_n = 2};
  const Answer answer = OnGpu(on_device.view(), request);
  const RowStatus ok = RowStatus::kOk, bad = RowStatus::kBadParam;
  EXPECT_EQ(answer.statuses, (std::vector{bad, bad, ok, ok, bad, bad, ok, ok}));
  const Answer good = Reference(batch.view(), {.k = 3, .lengths = {0, 100, 0, 0}, .next_n = 2});
  EXPECT_TRUE(SameSequence(answer.indices, good.indices));
  EXPECT_TRUE(SameSequence(answer.values, good.values));
}

TEST_P(CudaTopk, ManyRowsAndTheWidestRow) {
  const Batch many(RowsOf(bench::Scores::kUniform, 200, 3000), GetParam());
  const DeviceBatch many_on_device(many);
  const Request request{.k = 100};
  ExpectSame(OnGpu(many_on_device.view(), request), Reference(many.view(), request));

  if (GetParam() != DType::kBf16) return;  // the reference takes seconds
  const Batch widest(RowsOf(bench::Scores::kNormal, 1, kMaxVocab), GetParam());
  const DeviceBatch widest_on_device(widest);
  ExpectSame(OnGpu(widest_on_device.view(), {.k = 2048}), Reference(widest.view(), {.k = 2048}));
  const Request three_million{.k = 2048, .lengths = {3000001}};
  ExpectSame(OnGpu(widest_on_device.view(), three_million),
             Reference(widest.view(), three_million));
}

TEST_P(CudaTopk, ACapturedGraphSeesNewScoresAndLengths) {
  const int64_t columns = 30000;
  const Batch before(RowsOf(bench::Scores::kNormal, 2, columns), GetParam());
  const Batch after(RowsOf(bench::Scores::kRelu99, 2, columns), GetParam());
  const DeviceBatch on_device(before);
  OnDevice<int32_t> lengths(std::vector<int32_t>{30000, 30000});
  const OnDevice<int32_t> indices(2048);
  cudaStream_t stream;
  Require(cudaStreamCreate(&stream));
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cuda::Topk({.scores = on_device.view(), .k = 1024, .lengths = lengths}, {indices}, stream);
  cudaGraph_t graph;
  Require(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  Require(cudaGraphInstantiate(&executable, graph, 0));
  Require(cudaMemcpy(on_device.mutable_view().data, after.view().data, after.row_bytes().size(),
                     cudaMemcpyHostToDevice));
  lengths.Set({20000, 1000});
  Require(cudaGraphLaunch(executable, stream));
  Require(cudaStreamSynchronize(stream));
  const Answer expected = Reference(after.view(), {.k = 1024, .lengths = {20000, 1000}});
  EXPECT_TRUE(SameSequence(indices.Get(), expected.indices));
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaTopk, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

using CudaTopkBadInput = DeviceTest;

TEST_F(CudaTopkBadInput, NamesWhatIsWrong) {
  struct Call {
    cuda::TopkInput input = {
        {reinterpret_cast<const float*>(256), 0, 8, 8, DType::kF32, {DeviceKind::kCuda, 0}}, 3};
    cuda::TopkOutput output = {{reinterpret_cast<int32_t*>(256), 0}};
    TopkPlan plan = {TopkGuess::kSample, 1, 512, 64};
  };
  auto ints = [](int64_t size) {
    return cuda::DeviceArray<int32_t>(reinterpret_cast<int32_t*>(256), size);
  };
  ExpectErrors<Call>(
      {{[](Call& c) { c.input.k = 0; }, "k", "0", "[1, 8388608]"},
       {[](Call& c) { c.input.k = -1; }, "k", "-1", "[1, 8388608]"},
       {[](Call& c) { c.input.next_n = 0; }, "next_n", "0", "[1, 65536]"},
       {[](Call& c) {
          c.input.scores.rows = 3;
          c.input.next_n = 2;
        },
        "scores.rows", "3", "a multiple of next_n, 2"},
       {[](Call& c) { c.input.scores.stride = 7; }, "scores.stride", "7",
        "at least the row's 8 elements"},
       {[&](Call& c) { c.input.lengths = ints(1); }, "lengths.size()", "1", "0"},
       {[](Call& c) { c.input.hint_columns = -1; }, "hint_columns", "-1", "[0, 8388608]"},
       {[&](Call& c) { c.input.hint = ints(4); }, "hint.size()", "4", "0"},
       {[&](Call& c) { c.input.thresholds = {reinterpret_cast<float*>(256), 3}; },
        "thresholds.size()", "3", "0"},
       {[&](Call& c) { c.output.indices = ints(3); }, "indices.size()", "3", "0"},
       {[](Call& c) { c.output.values = {reinterpret_cast<float*>(256), 3}; }, "values.size()", "3",
        "0"},
       {[](Call& c) { c.plan.blocks = 3; }, "plan.blocks", "3", "a power of two in [1, 8]"},
       {[](Call& c) { c.plan.guess = static_cast<TopkGuess>(4); }, "plan.guess", "4", "[0, 3]"},
       {[](Call& c) { c.plan.threads = 64; }, "plan.threads", "64", "512 or 1024"},
       {[](Call& c) { c.plan.capacity = 100; }, "plan.capacity", "100",
        "0 or a power of two up to 16384"}},
      [](Call& c) { cuda::Topk(c.input, c.output, nullptr, &c.plan); });
}

}  // namespace
}  // namespace sluice::test
