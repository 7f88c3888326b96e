// Selection against an independent oracle: kept set, Cut, masses and status of every row.
#include "tests/select/oracle.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/backends.h"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

class SelectOracle : public BackendTest {
 protected:
  // Everything that the library says about one row against what the oracle says.
  void ExpectSame(const std::vector<float>& values, const SelectParams& params,
                  const NoiseKey& key) const {
    const Batch batch({values}, dtype());
    std::vector<float> widened(values.size());
    for (size_t i = 0; i < widened.size(); ++i) widened[i] = batch.Get(0, static_cast<int64_t>(i));
    const OracleAnswer expected = Oracle(widened, params, key).Answer();
    const Selection actual = Selected({batch.view(), {&params, 1}, {&key, 1}}, backend());
    EXPECT_TRUE(SameSequence(actual.cuts, std::vector<Cut>{expected.cut}));
    EXPECT_TRUE(SameSequence(actual.masses, std::vector<CutMass>{expected.mass}));
    EXPECT_TRUE(SameSequence(KeptIds(batch.view(), actual.cuts, backend())[0], expected.ids));
    // What lets two boundaries carry every set: no rule makes a hole.
    EXPECT_TRUE(expected.is_interval);
  }
};

std::string Describe(const SelectParams& p) {
  const Profile& f = p.profile;
  return ::testing::PrintToString(std::vector<float>{p.temperature, static_cast<float>(p.top_k),
                                                     p.top_p, p.min_p, p.top_n_sigma, p.typical_p,
                                                     p.xtc_probability, p.xtc_threshold}) +
         " switches " +
         ::testing::PrintToString(
             std::vector<int>{static_cast<int>(f.ties), static_cast<int>(f.top_k_top_p),
                              static_cast<int>(f.min_p_stage), static_cast<int>(f.top_p_boundary),
                              static_cast<int>(f.temperature_stage)});
}

// Small vocabularies, because they reach every edge of every rule most often: one token, all
// tokens, a boundary inside a group of ties.
TEST_P(SelectOracle, AgreesOnRandomRowsOfEveryKind) {
  Random random(17);
  for (int i = 0; i < 10000 / (kSlowdown * kShare) && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t vocab = 1 + static_cast<int64_t>(2047 * u * u * u * u);
    const RowKind kind = kAllRowKinds[random.Below(std::size(kAllRowKinds))];
    const SelectParams params = RandomSwitchedParams(vocab, random);
    SCOPED_TRACE(testing::Message() << "row " << i << " " << Name(kind) << " vocab " << vocab
                                    << " params " << Describe(params));
    ExpectSame(MakeRow(kind, vocab, random), params, RandomKey(random));
  }
}

// The rows that break samplers (ties at every cut, infinities, NaN, denormals, one token) at the
// ends of every parameter's range, in every profile.
TEST_P(SelectOracle, AgreesOnHostileRowsAtExtremeParametersInEveryProfile) {
  for (const HostileRow& row : HostileRows()) {
    for (SelectParams params : ExtremeSelectParams()) {
      for (const NamedProfile& named : kProfiles) {
        params.profile = named.profile;
        SCOPED_TRACE(testing::Message()
                     << row.name << " " << named.name << " params " << Describe(params));
        ExpectSame(row.values, params, {1, 2, 3});
      }
    }
  }
}

// Parameters just outside their ranges, alone and on rows that have a status of their own: the
// parameter's comes first.
TEST_P(SelectOracle, AgreesOnTheStatusOfBadParameters) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<SelectParams> bad = {
      {.temperature = -0x1p-149f},
      {.temperature = 2.0000002f},
      {.temperature = kNan},
      {.top_k = -2},
      {.top_p = 0.0f},
      {.top_p = 1.0000001f},
      {.top_p = kNan},
      {.min_p = -0x1p-149f},
      {.min_p = 1.0000001f},
      {.min_p = kNan},
      {.top_n_sigma = 16.000002f},
      {.top_n_sigma = kNan},
      {.typical_p = 0.0f},
      {.typical_p = kNan},
      {.xtc_probability = 1.0000001f},
      {.xtc_probability = kNan},
      {.xtc_threshold = -0.5f},
      {.xtc_threshold = kNan},
  };
  for (const HostileRow& row : HostileRows()) {
    for (const SelectParams& params : bad) {
      SCOPED_TRACE(testing::Message() << row.name << " params " << Describe(params));
      ExpectSame(row.values, params, {});
    }
  }
}

// Vocabularies of models in use, where sums are long and the set may be half of the row.
TEST_P(SelectOracle, AgreesAtTheVocabulariesOfModels) {
  Random random(18);
  for (int i = 0; i < 17 / kSlowdown + 1 && !HasFailure(); ++i) {
    const int64_t vocab = i % 2 == 0 ? 128256 : 151936;
    const RowKind kind = kAllRowKinds[static_cast<size_t>(i) % std::size(kAllRowKinds)];
    const SelectParams params = RandomSwitchedParams(vocab, random);
    SCOPED_TRACE(testing::Message()
                 << "row " << i << " " << Name(kind) << " params " << Describe(params));
    ExpectSame(MakeRow(kind, vocab, random), params, RandomKey(random));
  }
}

// Rows whose values lie far from 0, where a backend's approximate exp has the coarsest argument,
// with temperatures that put the boundary of top-p anywhere. Long enough to be sampled and
// screened.
TEST_P(SelectOracle, AgreesFarFromZero) {
  Random random(77);
  for (int i = 0; i < 240 / kSlowdown; ++i) {
    std::vector<float> row = MakeRow(kAllRowKinds[i % 8], random.Between(2048, 6000), random);
    const float shifts[] = {-340.0f, -60.0f, 60.0f, 340.0f, 1e4f};
    const float shift = shifts[random.Below(5)];
    for (float& x : row) x += shift;
    const float temperatures[] = {1.0f, 0.7f, 0.3f, 2.0f};
    const float ps[] = {0.9f, 0.5f, 0.99f, 0.05f};
    ExpectSame(row, {.temperature = temperatures[random.Below(4)], .top_p = ps[random.Below(4)]},
               {});
  }
}

// A hundred thousand tokens that weigh one unit each, of which the largest p below 1 drops 2^16.
TEST_P(SelectOracle, AgreesOnTheLightestWeights) {
  std::vector<float> row(100'000, -27.375f);  // -39.5 octaves, exact in every dtype
  row[7] = 0.0f;
  ExpectSame(row, {.top_p = 0.99999994f}, {});
}

SLUICE_FOR_EACH_BACKEND(SelectOracle);

}  // namespace
}  // namespace sluice::test
