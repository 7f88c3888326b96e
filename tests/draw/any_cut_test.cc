// Draws and log-probabilities from Cuts that fit their row well or badly: they equal the
// definition, and touch nothing beside the row.
#include "tests/support/any_cut.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/guarded_row.h"
#include "tests/support/params.h"
#include "tests/support/run.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

constexpr DrawMethod kMethods[] = {DrawMethod::kGumbel, DrawMethod::kCdf};
constexpr LogprobMode kModes[] = {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits,
                                  LogprobMode::kProcessedLogprobs, LogprobMode::kProcessedLogits};

class FromAnyCut : public BackendTest {};

TokenResult Drawn(const LogitsView& row, const SelectParams& params, const NoiseKey& key,
                  const Cut& cut, DrawMethod method, Backend backend) {
  const Workspace workspace(SelectWorkspaceBytes(row, {backend}));
  TokenResult result;
  Draw({row, {&params, 1}, {&key, 1}}, method, {&cut, 1}, {&result, 1},
       {backend, {}, workspace.span()});
  return result;
}

struct Report {
  TokenResult result;
  std::vector<int32_t> ids;
  std::vector<float> values;
};

Report Reported(const LogitsView& row, LogprobMode mode, const SelectParams& params,
                const TokenResult& result, int64_t width, Backend backend) {
  const Workspace workspace(SelectWorkspaceBytes(row, {backend}));
  const size_t size = static_cast<size_t>(width);
  Report report{result, std::vector<int32_t>(size, 7), std::vector<float>(size, 7.0f)};
  Logprobs({row, mode, {&params, 1}}, {&report.result, 1},
           {static_cast<int32_t>(width), report.ids, report.values},
           {backend, {}, workspace.span()});
  return report;
}

// The Cut is the caller's own; one with a NaN in it does not equal itself.
bool SameAnswer(TokenResult a, TokenResult b) {
  EXPECT_EQ(a.cut.count, b.cut.count);
  a.cut = b.cut = Cut{};
  return SameBits(a, b);
}

SelectParams AnyParams(Random& random) {
  const float temperatures[] = {1.0f, 0.7f, 0.01f, 0.0f};
  return {.temperature = temperatures[random.Below(4)]};
}

TEST_P(FromAnyCut, DrawEqualsTheDefinition) {
  Random random(1);
  for (const int64_t vocab : kBlockWidths) {
    for (int i = 0; i < Rounds(60); ++i) {
      const std::vector<float> values = AnyRow(vocab, random);
      const Batch batch({values}, dtype());
      const Cut cut = AnyCut(values, random);
      const SelectParams params = AnyParams(random);
      const NoiseKey key{random.Bits(), static_cast<uint32_t>(i), 0};
      for (const DrawMethod method : kMethods) {
        ASSERT_TRUE(SameAnswer(Drawn(batch.view(), params, key, cut, method, backend()),
                               Drawn(batch.view(), params, key, cut, method, Backend::kRef)))
            << "width " << vocab << " method " << static_cast<int>(method) << " "
            << testing::PrintToString(cut);
      }
    }
  }
}

// Long rows, on which the sums of parts decide; every draw of a flat row falls somewhere else.
// Where all kept tokens are unlikely, their scores are large negative numbers with few bits behind
// the point, and what bounds a score from above must know it.
TEST_P(FromAnyCut, DrawsFarBelowTheMaximumEqualTheDefinition) {
  Random random(5);
  for (const float depth : {40.0f, 700.0f, 7000.0f, 60000.0f}) {
    for (int i = 0; i < Rounds(100); ++i) {
      std::vector<float> values(200);
      for (float& x : values) x = -depth - static_cast<float>(random.Below(64)) * 0.0078125f;
      values[0] = 0.0f;
      const Batch batch({values}, dtype());
      Cut cut;
      cut.upper = -0.5f * depth;
      cut.lower = -2.0f * depth;
      cut.count = 199;
      const SelectParams params{.temperature = 0.01f};
      const NoiseKey key{random.Bits(), static_cast<uint32_t>(i), 0};
      ASSERT_TRUE(
          SameAnswer(Drawn(batch.view(), params, key, cut, DrawMethod::kGumbel, backend()),
                     Drawn(batch.view(), params, key, cut, DrawMethod::kGumbel, Backend::kRef)))
          << depth << " below, draw " << i;
    }
  }
}

TEST_P(FromAnyCut, CdfDrawsEqualTheDefinitionOnLongRows) {
  Random random(2);
  for (const RowKind kind : kAllRowKinds) {
    const std::vector<float> values = MakeRow(kind, 20000 + random.Below(200), random);
    const Batch batch({values}, dtype());
    for (int i = 0; i < 6; ++i) {
      const Cut cut = AnyCut(values, random);
      const SelectParams params = AnyParams(random);
      const NoiseKey key{random.Bits(), 0, 0};
      ASSERT_TRUE(
          SameAnswer(Drawn(batch.view(), params, key, cut, DrawMethod::kCdf, backend()),
                     Drawn(batch.view(), params, key, cut, DrawMethod::kCdf, Backend::kRef)))
          << Name(kind);
    }
  }
}

// Below a dropped maximum every kept token weighs one unit: the threshold is a number of tokens,
// and the draw the one behind them.
TEST_P(FromAnyCut, CdfCountsSingleUnits) {
  Random random(7);
  for (const size_t vocab : {50u, 300u, 9000u}) {
    std::vector<float> values(vocab, -27.375f);
    values[vocab / 2] = 0.0f;
    const Batch batch({values}, dtype());
    const Cut cut{.upper = -27.375f,
                  .lower = -27.375f,
                  .ties_dropped = 3,
                  .ties_kept = static_cast<int32_t>(vocab),
                  .count = 1};
    for (int i = 0; i < 40; ++i) {
      const NoiseKey key{random.Bits(), 0, 0};
      ASSERT_TRUE(SameAnswer(Drawn(batch.view(), {}, key, cut, DrawMethod::kCdf, backend()),
                             Drawn(batch.view(), {}, key, cut, DrawMethod::kCdf, Backend::kRef)));
    }
  }
}

// Each mode, any token as the sampled one, lists from none to all.
void ExpectSameReports(const std::vector<float>& values, DType dtype, Backend backend,
                       Random& random) {
  const Batch batch({values}, dtype);
  const int64_t vocab = batch.view().vocab;
  const SelectParams params = AnyParams(random);
  TokenResult result;
  result.id = static_cast<int32_t>(random.Below(vocab));
  result.cut = AnyCut(values, random);
  result.cut.status = RowStatus::kOk;
  const int64_t widths[] = {0, 1, 2, 21, random.Between(0, vocab + 1), vocab + 1};
  const int64_t width = std::min(vocab + 1, widths[random.Below(6)]);
  for (const LogprobMode mode : kModes) {
    const Report actual = Reported(batch.view(), mode, params, result, width, backend);
    const Report expected = Reported(batch.view(), mode, params, result, width, Backend::kRef);
    SCOPED_TRACE(testing::Message()
                 << "width " << vocab << " list " << width << " mode " << static_cast<int>(mode));
    ASSERT_TRUE(SameAnswer(actual.result, expected.result))
        << testing::PrintToString(actual.result) << " instead of "
        << testing::PrintToString(expected.result);
    ASSERT_TRUE(SameSequence(actual.ids, expected.ids));
    ASSERT_TRUE(SameSequence(actual.values, expected.values));
  }
}

TEST_P(FromAnyCut, LogprobsEqualTheDefinition) {
  Random random(3);
  for (const int64_t vocab : kBlockWidths) {
    for (int i = 0; i < Rounds(60) && !HasFailure(); ++i) {
      ExpectSameReports(AnyRow(vocab, random), dtype(), backend(), random);
    }
  }
}

TEST_P(FromAnyCut, LogprobsEqualTheDefinitionOnLongRows) {
  Random random(4);
  for (int i = 0; i < Rounds(24) && !HasFailure(); ++i) {
    ExpectSameReports(AnyRow(random.Between(1500, 25000), random), dtype(), backend(), random);
  }
}

// HostileRows have their zeros and infinities where they hurt.
TEST_P(FromAnyCut, LogprobsEqualTheDefinitionOnHostileRows) {
  Random random(5);
  for (const int64_t vocab : {67, 128, 700}) {
    for (const HostileRow& row : HostileRows(vocab)) {
      for (int i = 0; i < Rounds(8) && !HasFailure(); ++i) {
        SCOPED_TRACE(row.name);
        ExpectSameReports(row.values, dtype(), backend(), random);
      }
    }
  }
}

TEST_P(FromAnyCut, NothingBesideTheRowIsRead) {
  Random random(6);
  for (const int64_t vocab : kBlockWidths) {
    for (const GuardSide side : {GuardSide::kFront, GuardSide::kBack}) {
      const std::vector<float> values = AnyRow(vocab, random);
      const GuardedRow row(values, dtype(), side);
      const Cut cut = AnyCut(values, random);
      const NoiseKey key{random.Bits(), 0, 0};
      for (const SelectParams& params : {SelectParams{}, SelectParams{.temperature = 0.0f}}) {
        for (const DrawMethod method : kMethods) {
          Drawn(row.view(), params, key, cut, method, backend());
        }
        for (const LogprobMode mode : kModes) {
          TokenResult result;
          result.id = 0;
          result.cut = cut;
          Reported(row.view(), mode, params, result, std::min<int64_t>(vocab + 1, 5), backend());
        }
      }
    }
  }
}

SLUICE_FOR_EACH_BACKEND(FromAnyCut);

}  // namespace
}  // namespace sluice::test
