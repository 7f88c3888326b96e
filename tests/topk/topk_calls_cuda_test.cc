// topk on a GPU, call behind call: what one tells the next, and kernels that start before the one
// before them has ended.
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "tests/support/bad_input.h"
#include "tests/support/rows.h"
#include "tests/topk/device_topk.h"

namespace sluice::test {
namespace {

using cuda::TopkGuess;
using cuda::TopkPlan;
using cuda::TopkWay;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The first k of a row, in the order of indices.
std::vector<float> FirstValues(const std::vector<float>& row, size_t k) {
  std::vector<float> sorted = row;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(k) - 1, sorted.end(),
                   std::greater<>());
  const float least = sorted[k - 1];
  const auto larger = std::count_if(row.begin(), row.end(), [&](float x) { return x > least; });
  auto ties = static_cast<ptrdiff_t>(k) - larger;
  std::vector<float> values;
  for (const float x : row) {
    if (x > least || (x == least && ties-- > 0)) values.push_back(x);
  }
  return values;
}

bool IsNone(float threshold) { return threshold != threshold; }

class CudaTopkCalls : public DeviceTest, public ::testing::WithParamInterface<DType> {};

TEST_P(CudaTopkCalls, AThresholdNeverChangesTheAnswer) {
  const std::vector<float> thresholds = {kNan, -kNan, kInf,  -kInf,  0.0f,  -0.0f,    2.1f,
                                         1.9f, 5.0f,  -5.0f, 1e-45f, 3e38f, -3.4e38f, 1e38f * 3.4f};
  for (const bench::NamedScores& named : bench::kScores) {
    SCOPED_TRACE(named.name);
    if (GetParam() == DType::kF16 && named.scores == bench::Scores::kBig) continue;  // half +inf
    std::vector<float> row = bench::MakeScores(named.scores, 20001, 1);
    std::vector<float> with_nan = row;
    with_nan[15000] = kNan;
    const Batch two({row, with_nan}, GetParam());
    std::vector<std::vector<float>> rows(thresholds.size(), row);
    rows.resize(2 * thresholds.size(), with_nan);
    const Batch batch(rows, GetParam());
    const DeviceBatch on_device(batch);
    for (const bool sorted : {false, true}) {
      Request request{.k = 512, .sorted = sorted};
      const Answer of_two = Reference(two.view(), request);
      Answer expected;
      for (size_t r = 0; r < rows.size(); ++r) {
        const ptrdiff_t from = r < thresholds.size() ? 0 : request.k;
        const auto append = [&](auto& to, const auto& all, ptrdiff_t at, ptrdiff_t size) {
          to.insert(to.end(), all.begin() + at, all.begin() + at + size);
        };
        append(expected.indices, of_two.indices, from, request.k);
        append(expected.values, of_two.values, from, request.k);
        append(expected.statuses, of_two.statuses, from == 0 ? 0 : 1, 1);
        request.thresholds.push_back(thresholds[r % thresholds.size()]);
      }
      ExpectSame(OnGpu(on_device.view(), request), expected);
      for (const int32_t blocks : {1, 2, 4, 8}) {
        SCOPED_TRACE(blocks);
        const TopkPlan plan{TopkGuess::kThreshold, blocks, 512, 2048};
        ExpectSame(OnGpu(on_device.view(), request, &plan), expected);
      }
    }
  }
}

// The count decides, as with a hint, and what is told to the next call says how it came out.
TEST_P(CudaTopkCalls, AThresholdIsBelievedExactlyWhenItsCountFitsAndToldWhenItIsNotClose) {
  if (GetParam() != DType::kF32) GTEST_SKIP() << "rounding makes ties";
  const int32_t columns = 50000, k = 1024, capacity = 4096;
  std::vector<float> row(static_cast<size_t>(columns));
  for (int32_t i = 0; i < columns; ++i) {
    row[static_cast<size_t>(i)] = static_cast<float>(int64_t{i} * 7919 % columns);
  }
  const Batch batch({row});
  const DeviceBatch on_device(batch);
  const Answer expected = Reference(batch.view(), {.k = k});
  for (const int32_t count :
       {0, 1, k - 1, k, k + 1, 1151, 1152, 2000, 3584, 3585, capacity, capacity + 1, columns}) {
    const auto threshold = static_cast<float>(columns - count);  // so many reach it
    for (const int32_t blocks : {1, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << count << " reach it, " << blocks << " blocks");
      const TopkPlan plan{TopkGuess::kThreshold, blocks, 512, capacity};
      const Request request{.k = k, .thresholds = {threshold}};
      const Answer answer = OnGpu(on_device.view(), request, &plan);
      ExpectSame(answer, expected);
      const bool fits = count >= k && count <= capacity;
      EXPECT_EQ(answer.work[0].reads, fits ? 1 : 2);
      if (!fits) continue;
      EXPECT_EQ(answer.work[0].candidates, count);
      const bool is_amid = count >= k + k / 8 && count <= capacity - capacity / 8;
      EXPECT_EQ(IsNone(answer.thresholds[0]), !is_amid);
      if (is_amid) {
        EXPECT_EQ(answer.thresholds[0], threshold);
      }
    }
  }
}

// From NaN on, step by step on rows of one distribution: the threshold of one row serves the next.
TEST_P(CudaTopkCalls, ACarriedThresholdServesTheNextRows) {
  const int64_t columns = 70000;
  const int32_t k = 1024;
  std::vector<float> thresholds = {kNan, kNan};
  for (uint32_t step = 0; step < 6; ++step) {
    SCOPED_TRACE(step);
    const Batch batch({bench::MakeScores(bench::Scores::kNormal, columns, 2 * step),
                       bench::MakeScores(bench::Scores::kNormal, columns, 2 * step + 1)},
                      GetParam());
    const DeviceBatch on_device(batch);
    const Request request{.k = k, .thresholds = thresholds};
    EXPECT_EQ(
        cuda::PlanTopk(
            {.scores = on_device.view(), .k = k, .thresholds = {reinterpret_cast<float*>(256), 2}})
            .guess,
        TopkGuess::kThreshold);
    const Answer answer = OnGpu(on_device.view(), request);
    ExpectSame(answer, Reference(batch.view(), {.k = k}));
    for (size_t r = 0; r < 2; ++r) {
      EXPECT_EQ(answer.work[r].reads, 1);
      EXPECT_EQ(answer.work[r].way, TopkWay::kCandidates);
      ASSERT_FALSE(IsNone(answer.thresholds[r]));
      if (step > 0) {
        EXPECT_TRUE(SameBits(answer.thresholds[r], thresholds[r]));
      }
    }
    thresholds = answer.thresholds;
  }
}

TEST_P(CudaTopkCalls, RowsWithoutAThresholdTellNone) {
  const int64_t columns = 60000;
  std::vector<std::vector<float>> rows = RowsOf(bench::Scores::kNormal, 4, columns);
  rows[0][0] = kNan;
  std::fill(rows[1].begin(), rows[1].end(), 3.0f);
  const Batch batch(rows, GetParam());
  const DeviceBatch on_device(batch);
  const auto whole = static_cast<int32_t>(columns);
  // A NaN, a plateau, a row that is short, a length that is not allowed.
  const Request request{.k = 500,
                        .lengths = {whole, whole, 3000, whole + 1},
                        .thresholds = std::vector<float>(4, 1.0f)};
  for (const int32_t capacity : {0, 4096}) {
    for (const int32_t blocks : {1, 8}) {
      const TopkPlan plan{TopkGuess::kThreshold, blocks, 512, capacity};
      for (const float told : OnGpu(on_device.view(), request, &plan).thresholds) {
        EXPECT_TRUE(IsNone(told)) << told;
      }
    }
  }
}

// Each call reads what the one before it writes, and writes what that one and those before have
// read: its scores are their values. No one waits, so kernels start as early as they are let.
TEST_P(CudaTopkCalls, ACallThatStartsEarlyReadsAndWritesBehindTheOneBefore) {
  if (GetParam() != DType::kF32) GTEST_SKIP() << "values are fp32";
  constexpr int32_t kRounds = 16, kFirst = 9000, kSecond = 3000, kThird = 500;
  const int64_t columns = 70000;
  for (const int64_t rows : {1, 8, 20, 40}) {
    SCOPED_TRACE(testing::Message() << rows << " rows");
    const std::vector<std::vector<float>> host =
        RowsOf(bench::Scores::kNormal, rows, columns + kRounds);
    const Batch batch(host);
    const DeviceBatch on_device(batch, RowStartAt::kAligned);
    const auto row_count = static_cast<size_t>(rows);
    const OnDevice<float> first(row_count * kFirst), second(row_count * kSecond);
    const OnDevice<int32_t> first_ids(row_count * kFirst), second_ids(row_count * kSecond);
    const OnDevice<int32_t> third_ids(row_count * kThird * kRounds);
    const OnDevice<float> third(row_count * kThird * kRounds);
    const OnDevice<float> thresholds(std::vector<float>(row_count, kNan));
    const auto values_of = [&](const OnDevice<float>& values, int64_t width) {
      return LogitsView{values.data(), rows, width, width, DType::kF32, {DeviceKind::kCuda, 0}};
    };
    const TopkPlan plan{TopkGuess::kThreshold, rows <= 8 ? 8 : 2, 512, 16384};
    cudaStream_t stream;
    Require(cudaStreamCreate(&stream));
    for (int32_t round = 0; round < kRounds; ++round) {
      LogitsView scores = on_device.view();  // of this round: other rows
      scores.data = static_cast<const float*>(scores.data) + round;
      scores.vocab = columns;
      cuda::Topk({.scores = scores, .k = kFirst, .thresholds = thresholds}, {first_ids, first},
                 stream, &plan);
      cuda::Topk({.scores = values_of(first, kFirst), .k = kSecond}, {second_ids, second}, stream);
      const auto at = static_cast<size_t>(round) * row_count * kThird;
      cuda::Topk({.scores = values_of(second, kSecond), .k = kThird},
                 {{third_ids.data() + at, static_cast<int64_t>(row_count * kThird)},
                  {third.data() + at, static_cast<int64_t>(row_count * kThird)}},
                 stream);
    }
    Require(cudaStreamSynchronize(stream));
    cudaStreamDestroy(stream);
    const std::vector<float> found = third.Get();
    for (int32_t round = 0; round < kRounds; ++round) {
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<float> row = host[static_cast<size_t>(r)];
        row.erase(row.begin(), row.begin() + round);
        row.resize(static_cast<size_t>(columns));
        const size_t from =
            (static_cast<size_t>(round) * row_count + static_cast<size_t>(r)) * kThird;
        const std::vector<float> values(found.begin() + static_cast<ptrdiff_t>(from),
                                        found.begin() + static_cast<ptrdiff_t>(from + kThird));
        ASSERT_TRUE(SameSequence(values, FirstValues(row, kThird)))
            << "round " << round << ", row " << r;
      }
    }
  }
}

// What a request's hint is read for, its rows write at another time.
TEST_P(CudaTopkCalls, AHintInWhatIsWrittenIsRefused) {
  const Batch batch(RowsOf(bench::Scores::kNormal, 2, 9000), GetParam());
  const DeviceBatch on_device(batch);
  const OnDevice<int32_t> memory(10000);
  const OnDevice<float> values(200);
  const auto part = [&](int64_t from, int64_t size) {
    return cuda::DeviceArray<int32_t>{memory.data() + from, size};
  };
  const auto call = [&](int64_t hint_from, int64_t indices_from) {
    const auto hint = part(hint_from, 100);
    cuda::Topk({.scores = on_device.view(),
                .k = 100,
                .next_n = 2,
                .hint = {hint.data, hint.size},
                .hint_columns = 100},
               {part(indices_from, 200), values}, nullptr);
  };
  for (const int64_t from : {1, 99, 150, 299}) {
    ExpectError([&] { call(from, 100); }, "hint.data", "memory of indices",
                "memory that the call does not write");
  }
  call(0, 100);
  call(300, 100);
  Require(cudaDeviceSynchronize());
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaTopkCalls, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
