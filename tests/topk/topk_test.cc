// topk for scores: the exact set under the total order, whatever the lengths and hints.
#include "sluice/topk.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "bench/support/score_rows.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class TopkScores : public BackendTest {};

struct Answer {
  std::vector<int32_t> indices;
  std::vector<float> values;
  std::vector<RowStatus> statuses;
};

Answer Answered(const TopkInput& input, const Execution& how) {
  const Workspace workspace(TopkWorkspaceBytes(input, how));
  const size_t rows = static_cast<size_t>(input.scores.rows);
  const size_t size = rows * static_cast<size_t>(input.k);
  Answer answer{std::vector<int32_t>(size), std::vector<float>(size), std::vector<RowStatus>(rows)};
  Topk(input, answer.indices, answer.values, answer.statuses,
       {how.backend, how.parallel, workspace.span()});
  return answer;
}

// All ids of a row by a stable sort of its scores, largest first: equal scores stay in the order of
// their ids. What a prefix of the row has is in the same order, so a row is sorted once for all k
// and lengths.
std::vector<int32_t> Order(const Batch& batch, int64_t r) {
  const size_t columns = static_cast<size_t>(batch.view().vocab);
  std::vector<float> scores(columns);
  for (size_t i = 0; i < columns; ++i) scores[i] = batch.Get(r, static_cast<int64_t>(i));
  std::vector<int32_t> ids(columns);
  std::iota(ids.begin(), ids.end(), 0);
  const float* const score = scores.data();
  std::stable_sort(ids.begin(), ids.end(),
                   [score](int32_t a, int32_t b) { return score[a] > score[b]; });
  return ids;
}

std::vector<std::vector<int32_t>> Orders(const Batch& batch) {
  std::vector<std::vector<int32_t>> orders;
  for (int64_t r = 0; r < batch.view().rows; ++r) orders.push_back(Order(batch, r));
  return orders;
}

// The first k of an order that are visible.
std::vector<int32_t> Expected(const std::vector<int32_t>& order, int64_t visible, int32_t k,
                              bool sorted) {
  std::vector<int32_t> indices;
  for (const int32_t id : order) {
    if (std::ssize(indices) == k) break;
    if (id < visible) indices.push_back(id);
  }
  if (!sorted) std::sort(indices.begin(), indices.end());
  indices.resize(static_cast<size_t>(k), -1);
  return indices;
}

void ExpectRow(const Answer& answer, const Batch& batch, const std::vector<int32_t>& order,
               int64_t r, int64_t visible, int32_t k, bool sorted) {
  const size_t first = static_cast<size_t>(r) * static_cast<size_t>(k);
  const auto indices = std::span(answer.indices).subspan(first, static_cast<size_t>(k));
  EXPECT_EQ(answer.statuses[static_cast<size_t>(r)], RowStatus::kOk);
  EXPECT_TRUE(SameSequence(indices, Expected(order, visible, k, sorted))) << "row " << r;
  std::vector<float> values;
  for (const int32_t id : indices) values.push_back(id < 0 ? -kInf : batch.Get(r, id));
  EXPECT_TRUE(
      SameSequence(std::span(answer.values).subspan(first, static_cast<size_t>(k)), values));
}

TEST_P(TopkScores, EqualsAStableSortForRaggedSpeculativeRows) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const int64_t columns = random.Between(1, 300);
    const int32_t next_n = static_cast<int32_t>(random.Between(1, 4));
    const int64_t requests = random.Between(1, 5);
    std::vector<std::vector<float>> rows;
    for (int64_t r = 0; r < requests * next_n; ++r) {
      rows.push_back(MakeRow(kAllRowKinds[static_cast<size_t>(random.Below(8))], columns, random));
    }
    const Batch batch(rows, dtype());
    std::vector<int32_t> lengths;
    for (int64_t r = 0; r < requests; ++r) {
      lengths.push_back(static_cast<int32_t>(random.Below(columns + 1)));
    }
    const int32_t k = static_cast<int32_t>(random.Between(1, columns + 5));
    const std::vector<std::vector<int32_t>> orders = Orders(batch);
    for (const bool sorted : {false, true}) {
      const Answer answer = Answered(
          {.scores = batch.view(), .k = k, .lengths = lengths, .next_n = next_n, .sorted = sorted},
          {backend()});
      for (int64_t r = 0; r < batch.view().rows; ++r) {
        const int64_t length = lengths[static_cast<size_t>(r / next_n)];
        const int64_t visible = std::max<int64_t>(0, length - next_n + r % next_n + 1);
        ExpectRow(answer, batch, orders[static_cast<size_t>(r)], r, visible, k, sorted);
      }
      const Answer whole =
          Answered({.scores = batch.view(), .k = k, .sorted = sorted}, {backend()});
      for (int64_t r = 0; r < batch.view().rows; ++r) {
        ExpectRow(whole, batch, orders[static_cast<size_t>(r)], r, columns, k, sorted);
      }
    }
  }
}

TEST_P(TopkScores, ASpeculativeRowSeesOneMoreScoreThanTheOneBefore) {
  const Batch batch({std::vector<float>(20, 1.0f), std::vector<float>(20, 1.0f)}, dtype());
  const std::vector<int32_t> lengths = {10};
  const Answer answer =
      Answered({.scores = batch.view(), .k = 12, .lengths = lengths, .next_n = 2}, {backend()});
  EXPECT_EQ(answer.indices, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, -1, -1, -1,  //
                                                  0, 1, 2, 3, 4, 5, 6, 7, 8, 9,  -1, -1}));
}

TEST_P(TopkScores, KeepsTheSmallerIdsOfALongTie) {
  // Production kernels with a bounded buffer for candidates returned wrong sets here.
  std::vector<float> row(7000, 1.0f);
  row.resize(7100, 2.0f);
  const Batch batch({row}, dtype());
  const Answer answer = Answered({.scores = batch.view(), .k = 2048}, {backend()});
  std::vector<int32_t> expected(2048);
  std::iota(expected.begin(), expected.begin() + 1948, 0);
  std::iota(expected.begin() + 1948, expected.end(), 7000);
  EXPECT_TRUE(SameSequence(answer.indices, expected));
}

TEST_P(TopkScores, LeavesOutExactlyTheSmallestOfKPlusOne) {
  Random random(2);
  for (int round = 0; round < 50; ++round) {
    const int64_t columns = random.Between(2, 200);
    const Batch batch({MakeRow(RowKind::kNormal, columns, random)}, dtype());
    int32_t smallest = 0;  // the last one in the total order
    for (int32_t i = 1; i < columns; ++i) {
      if (batch.Get(0, i) <= batch.Get(0, smallest)) smallest = i;
    }
    const Answer answer =
        Answered({.scores = batch.view(), .k = static_cast<int32_t>(columns) - 1}, {backend()});
    std::vector<int32_t> expected;
    for (int32_t i = 0; i < columns; ++i) {
      if (i != smallest) expected.push_back(i);
    }
    EXPECT_TRUE(SameSequence(answer.indices, expected));
  }
}

TEST_P(TopkScores, AHintNeverChangesTheAnswer) {
  Random random(3);
  for (int round = 0; round < 40; ++round) {
    const int32_t columns = static_cast<int32_t>(random.Between(1, 200));
    std::vector<std::vector<float>> rows;
    for (int r = 0; r < 6; ++r) rows.push_back(MakeRow(RowKind::kFewDistinct, columns, random));
    const Batch batch(rows, dtype());
    TopkInput input{.scores = batch.view(),
                    .k = static_cast<int32_t>(random.Between(1, columns + 2)),
                    .next_n = 2,
                    .sorted = random.Coin()};
    const Answer plain = Answered(input, {backend()});
    input.hint_columns = static_cast<int32_t>(random.Between(1, 2 * columns));
    const int64_t ids = 3 * input.hint_columns;
    auto any = [&] { return static_cast<int32_t>(random.Below(columns)); };
    const std::vector<std::vector<int32_t>> hints = {
        std::vector<int32_t>(static_cast<size_t>(ids), any()),      // repeated
        std::vector<int32_t>(static_cast<size_t>(ids), -1),         // absent
        std::vector<int32_t>(static_cast<size_t>(ids), INT32_MAX),  // out of range
        std::vector<int32_t>(static_cast<size_t>(ids), INT32_MIN),  //
        std::vector<int32_t>(static_cast<size_t>(ids), columns),    // just behind
        std::vector<int32_t>(plain.indices.begin(),                 // the answer, stale for
                             plain.indices.begin() + input.k),      // the other requests
    };
    for (std::vector<int32_t> hint : hints) {
      while (hint.size() < static_cast<size_t>(ids)) hint.push_back(any());
      hint.resize(static_cast<size_t>(ids));
      input.hint = hint;
      for (const int32_t shift : {0, 1, -1, columns, INT32_MAX, INT32_MIN}) {
        input.hint_shift = shift;
        const Answer hinted = Answered(input, {backend()});
        EXPECT_TRUE(SameSequence(hinted.indices, plain.indices));
        EXPECT_TRUE(SameSequence(hinted.values, plain.values));
      }
    }
  }
}

TEST_P(TopkScores, AThresholdNeverChangesTheAnswer) {
  const std::vector<float> thresholds = {kNan, -kNan, kInf, -kInf, 0.0f,  -0.0f,
                                         2.1f, -5.0f, 9.0f, 1e38f, 1e-45f};
  for (const bench::NamedScores& named : bench::kScores) {
    SCOPED_TRACE(named.name);
    const std::vector<float> row = bench::MakeScores(named.scores, 9001, 7);
    std::vector<float> with_nan = row;
    with_nan[8000] = kNan;
    std::vector<std::vector<float>> rows(thresholds.size(), row);
    rows.push_back(with_nan);
    const Batch batch(rows, dtype());
    for (const int32_t k : {1, 600}) {
      TopkInput input{.scores = batch.view(), .k = k, .sorted = k == 600};
      const Answer plain = Answered(input, {backend()});
      std::vector<float> told = thresholds;
      told.push_back(1.0f);
      input.thresholds = told;
      const Answer answer = Answered(input, {backend()});
      EXPECT_TRUE(SameSequence(answer.indices, plain.indices));
      EXPECT_TRUE(SameSequence(answer.values, plain.values));
      EXPECT_TRUE(SameSequence(answer.statuses, plain.statuses));
      EXPECT_TRUE(std::isnan(told.back()));
    }
  }
}

// Told again as long as neither too few scores reach it nor so many that a sample is quicker; the
// reference has no threshold.
TEST_P(TopkScores, AThresholdIsToldToTheNextCallWhileItsCountIsAmid) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "rounding makes ties";
  constexpr int32_t kColumns = 30000, kK = 1600;
  std::vector<float> row;
  for (int32_t i = 0; i < kColumns; ++i) {
    row.push_back(static_cast<float>(int64_t{i} * 7919 % kColumns));  // all different
  }
  const Batch batch({row});
  TopkInput input{.scores = batch.view(), .k = kK};
  const Answer plain = Answered(input, {backend()});
  std::vector<float> told = {kNan};
  input.thresholds = told;
  const auto tell = [&](int32_t count) {  // a threshold that so many reach
    told[0] = static_cast<float>(kColumns - count);
    EXPECT_TRUE(SameSequence(Answered(input, {backend()}).indices, plain.indices));
    return told[0];
  };
  for (const int32_t count : {0, 1599, 1600, 1699, 4801, kColumns}) {
    EXPECT_FALSE(tell(count) == static_cast<float>(kColumns - count)) << count;
  }
  for (const int32_t count : {1700, 2500, 4800}) {
    const float expected = static_cast<float>(kColumns - count);
    if (backend() == Backend::kRef) {
      EXPECT_TRUE(std::isnan(tell(count)));
    } else {
      EXPECT_EQ(tell(count), expected);
    }
  }
  // After a count that does not fit, a sample's: which leaves enough, and is told in turn.
  if (backend() == Backend::kRef) return;
  const float of_sample = tell(0);
  EXPECT_LE(of_sample, static_cast<float>(kColumns - kK - kK / 16));
  EXPECT_GE(of_sample, static_cast<float>(kColumns - 3 * kK));
  EXPECT_TRUE(SameSequence(Answered(input, {backend()}).indices, plain.indices));
  EXPECT_EQ(told[0], of_sample);
}

TEST_P(TopkScores, NansBehindTheLengthAreNotLookedAtAndThoseBeforeItAreAStatus) {
  const std::vector<float> good = {1.0f, 3.0f, 2.0f, kNan, kNan};
  const std::vector<float> bad = {1.0f, kNan, 2.0f, 0.0f, 0.0f};
  const Batch batch({good, bad, good}, dtype());
  const std::vector<int32_t> lengths = {3, 3, 3};
  for (const bool sorted : {false, true}) {
    const Answer answer = Answered(
        {.scores = batch.view(), .k = 2, .lengths = lengths, .sorted = sorted}, {backend()});
    EXPECT_EQ(answer.statuses, (std::vector{RowStatus::kOk, RowStatus::kNanInput, RowStatus::kOk}));
    EXPECT_EQ(answer.indices, (std::vector<int32_t>{1, 2, -1, -1, 1, 2}));
    EXPECT_EQ(answer.values, (std::vector<float>{3.0f, 2.0f, -kInf, -kInf, 3.0f, 2.0f}));
  }
}

TEST_P(TopkScores, InfinitiesAreOrdinaryScores) {
  const Batch batch({{-kInf, 1.0f, kInf, -kInf, kInf}}, dtype());
  const Answer three = Answered({.scores = batch.view(), .k = 3, .sorted = true}, {backend()});
  EXPECT_EQ(three.indices, (std::vector<int32_t>{2, 4, 1}));
  const Answer all = Answered({.scores = batch.view(), .k = 6, .sorted = true}, {backend()});
  EXPECT_EQ(all.indices, (std::vector<int32_t>{2, 4, 1, 0, 3, -1}));
  EXPECT_EQ(all.values, (std::vector<float>{kInf, kInf, 1.0f, -kInf, -kInf, -kInf}));
  EXPECT_EQ(all.statuses[0], RowStatus::kOk);
}

TEST_P(TopkScores, EveryHostileRowWithoutNanIsSortedExactly) {
  for (const HostileRow& row : HostileRows()) {
    const Batch batch({row.values}, dtype());
    const bool has_nan =
        std::any_of(row.values.begin(), row.values.end(), [](float x) { return std::isnan(x); });
    const std::vector<int32_t> order = has_nan ? std::vector<int32_t>{} : Order(batch, 0);
    for (const int32_t k : {1, 2, 7, 66, 67, 68}) {
      for (const bool sorted : {false, true}) {
        const Answer answer =
            Answered({.scores = batch.view(), .k = k, .sorted = sorted}, {backend()});
        if (has_nan) {
          EXPECT_EQ(answer.statuses[0], RowStatus::kNanInput) << row.name;
          EXPECT_EQ(answer.indices, std::vector<int32_t>(static_cast<size_t>(k), -1)) << row.name;
        } else {
          ExpectRow(answer, batch, order, 0, batch.view().vocab, k, sorted);
        }
      }
    }
  }
}

// Wide enough for guesses from a sample, at every alignment of the end of a row.
TEST_P(TopkScores, EveryDistributionIsSelectedExactly) {
  for (const bench::NamedScores& named : bench::kScores) {
    SCOPED_TRACE(named.name);
    // Beyond fp16: half of it is +inf, where nothing is larger.
    if (dtype() == DType::kF16 && named.scores == bench::Scores::kBig) continue;
    const int64_t columns = 40011;
    const Batch batch({bench::MakeScores(named.scores, columns, 3)}, dtype());
    const std::vector<int32_t> order = Order(batch, 0);
    for (const int32_t length : {40011, 20037, 9000}) {
      const std::vector<int32_t> lengths = {length};
      for (const int32_t k : {1, 300, 2048}) {
        const bool sorted = length == 20037;
        const Answer answer = Answered(
            {.scores = batch.view(), .k = k, .lengths = lengths, .sorted = sorted}, {backend()});
        ExpectRow(answer, batch, order, 0, length, k, sorted);
      }
    }
  }
}

TEST_P(TopkScores, EveryWideHostileRowIsSelectedExactly) {
  for (const HostileRow& row : HostileRows(12000)) {
    SCOPED_TRACE(row.name);
    const Batch batch({row.values}, dtype());
    const bool has_nan =
        std::any_of(row.values.begin(), row.values.end(), [](float x) { return std::isnan(x); });
    const std::vector<int32_t> order = has_nan ? std::vector<int32_t>{} : Order(batch, 0);
    for (const int32_t k : {1, 500, 2048, 11999, 12000}) {
      const Answer answer = Answered({.scores = batch.view(), .k = k}, {backend()});
      if (has_nan) {
        EXPECT_EQ(answer.statuses[0], RowStatus::kNanInput);
        EXPECT_EQ(answer.indices, std::vector<int32_t>(static_cast<size_t>(k), -1));
      } else {
        ExpectRow(answer, batch, order, 0, batch.view().vocab, k, false);
      }
    }
  }
}

// What a sample says is wrong: there are a few larger scores where it does not look, or it sees
// nothing else, or a plateau that ends before the rank.
TEST_P(TopkScores, RowsThatASampleMisleadsAreSelectedExactly) {
  Random random(5);
  const int64_t columns = 30000;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<std::vector<float>> rows;
  for (const int64_t period : {64, 100, 117, 128}) {
    std::vector<float> row = MakeRow(RowKind::kNormal, columns, random);
    for (int64_t i = 0; i < columns; ++i) {
      if (i % period >= 16) row[at(i)] -= 50.0f;
    }
    rows.push_back(row);
    for (int64_t i = 0; i < columns; ++i) {
      row[at(i)] = i % period >= 16 ? static_cast<float>(i % 50) : -3.0f;
    }
    rows.push_back(row);
  }
  std::vector<float> steps(at(columns));
  for (int64_t i = 0; i < columns; ++i) steps[at(i)] = i < 1500 ? 2.0f : i % 3 == 0 ? 1.0f : 0.0f;
  rows.push_back(steps);
  std::vector<float> padded(at(columns), -kInf);
  for (int64_t i = 0; i < columns; i += 40) padded[at(i)] = 1.0f;
  rows.push_back(padded);
  const Batch batch(rows, dtype());
  const std::vector<std::vector<int32_t>> orders = Orders(batch);
  for (const int32_t k : {1, 512, 1499, 1500, 1501, 2048, 11500}) {
    const Answer answer = Answered({.scores = batch.view(), .k = k}, {backend()});
    for (int64_t r = 0; r < batch.view().rows; ++r) {
      ExpectRow(answer, batch, orders[static_cast<size_t>(r)], r, columns, k, false);
    }
  }
}

TEST_P(TopkScores, ANanOfAWideRowIsAStatusWhereverItIs) {
  Random random(6);
  const int64_t columns = 20003;
  const std::vector<float> good = MakeRow(RowKind::kNormal, columns, random);
  for (const int64_t at : {0, 1, 9999, 19967, 19999, 20000, 20002}) {
    std::vector<float> row = good;
    row[static_cast<size_t>(at)] = at % 2 == 0 ? kNan : -kNan;
    const Batch batch({row}, dtype());
    const Answer answer = Answered({.scores = batch.view(), .k = 100}, {backend()});
    EXPECT_EQ(answer.statuses[0], RowStatus::kNanInput) << at;
    EXPECT_EQ(answer.indices, std::vector<int32_t>(100, -1)) << at;
    EXPECT_EQ(answer.values, std::vector<float>(100, -kInf)) << at;
  }
}

TEST_P(TopkScores, RowsMayStartAtAnyElement) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "the rows are made in fp32";
  constexpr int64_t kColumns = 9011, kRows = 3;
  std::vector<float> scores(1, kNan);
  std::vector<std::vector<float>> rows;
  for (uint32_t r = 0; r < kRows; ++r) {
    rows.push_back(bench::MakeScores(bench::Scores::kRelu, kColumns, r));
    scores.insert(scores.end(), rows.back().begin(), rows.back().end());
    scores.insert(scores.end(), 2, kNan);  // between rows, where nobody looks
  }
  const LogitsView view{scores.data() + 1, kRows, kColumns, kColumns + 2, DType::kF32, {}};
  const Batch batch(rows);
  const std::vector<std::vector<int32_t>> orders = Orders(batch);
  for (const int32_t k : {1, 2048, 6000}) {
    const Answer answer = Answered({.scores = view, .k = k}, {backend()});
    for (int64_t r = 0; r < kRows; ++r) {
      ExpectRow(answer, batch, orders[static_cast<size_t>(r)], r, kColumns, k, false);
    }
  }
}

TEST_P(TopkScores, NothingIsWrittenBehindTheAnswer) {
  const Batch batch({bench::MakeScores(bench::Scores::kNormal, 9001, 1)}, dtype());
  for (const int32_t k : {1, 7, 2047, 9001, 9003}) {
    const TopkInput input{.scores = batch.view(), .k = k};
    const Workspace workspace(TopkWorkspaceBytes(input, {backend()}));
    const size_t size = static_cast<size_t>(k);
    std::vector<int32_t> indices(size + 64, 77);
    std::vector<float> values(size + 64, 77.0f);
    std::vector<RowStatus> statuses(1);
    Topk(input, std::span(indices).first(size), std::span(values).first(size), statuses,
         {backend(), {}, workspace.span()});
    EXPECT_EQ(std::count(indices.begin() + k, indices.end(), 77), 64);
    EXPECT_EQ(std::count(values.begin() + k, values.end(), 77.0f), 64);
  }
}

TEST_P(TopkScores, ValuesMayBeLeftOutAndAnyParallelForWillDo) {
  Random random(4);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < 20; ++r) rows.push_back(MakeRow(RowKind::kMid, 90, random));
  const Batch batch(rows, dtype());
  const TopkInput input{.scores = batch.view(), .k = 11};
  auto backwards = [](void*, int64_t count, ParallelFor::Task task, void* state) {
    for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
  };
  const Answer serial = Answered(input, {backend()});
  const Answer parallel = Answered(input, {backend(), {3, nullptr, backwards}});
  EXPECT_TRUE(SameSequence(parallel.indices, serial.indices));
  const Workspace workspace(TopkWorkspaceBytes(input, {backend()}));
  std::vector<int32_t> indices(serial.indices.size());
  std::vector<RowStatus> statuses(20);
  Topk(input, indices, {}, statuses, {backend(), {}, workspace.span()});
  EXPECT_TRUE(SameSequence(indices, serial.indices));
}

SLUICE_FOR_EACH_BACKEND(TopkScores);

}  // namespace
}  // namespace sluice::test
