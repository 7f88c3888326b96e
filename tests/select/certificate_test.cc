// What a vector backend certifies instead of computing: rows where one unit of mass decides, where
// its approximate sums would mean nothing, and where one pass has to do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "semantics/order.h"
#include "semantics/temperature.h"
#include "tests/select/everything.h"
#include "tests/support/backends.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

// At this temperature a logit is a number of octaves: -j weighs 2^(40 - j).
constexpr float kOctaves = 0x1.715476p+0f;

class Certificate : public BackendTest {
 protected:
  std::vector<Cut> Certified(const SelectInput& input) const {
    const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend()}));
    std::vector<Cut> cuts(static_cast<size_t>(input.logits.rows));
    Select(input, cuts, {},
           {backend(), {}, workspace.span(), nullptr, SelectAlgorithm::kCertified});
    return cuts;
  }
  void ExpectDefinition(const Batch& batch, const SelectParams& params) const {
    const SelectInput input{batch.view(), {&params, 1}, {}, {.max_temperature = 3.4e38f}};
    EXPECT_TRUE(SameSequence(Certified(input), Selected(input, Backend::kRef).cuts));
  }
};

// Appends tokens of one octave each, whose weights add up to `mass`.
void Fill(std::vector<float>& row, uint64_t mass) {
  for (int bit = 0; bit < 40; ++bit) {
    if ((mass >> bit) & 1) row.push_back(static_cast<float>(bit - 40));
  }
}

uint64_t MassOf(const std::vector<float>& row) {
  uint64_t mass = 0;
  for (const float x : row)
    mass += semantics::Weight(x, 0.0f, semantics::TemperatureScale(kOctaves));
  return mass;
}

// The first token holds half of the mass, or half a unit less: it alone is kept, or a second one.
// Below it lie many tokens that are cut off to an odd number of units each, from the lightest ones,
// which lose up to half of their mass that way, to ones that fill the 24 bits of exact fp32 sums.
TEST_P(Certificate, OneUnitOfMassDecides) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  Random random(41);
  for (const float octaves : {-39.25f, -38.25f, -36.25f, -30.125f, -24.125f, -21.125f, -20.125f}) {
    for (const int64_t vocab : {3001, 40000, 300000}) {
      std::vector<float> body(static_cast<size_t>(vocab));
      const float step = octaves < -32.0f ? 0.25f : 0.125f;
      for (float& x : body) x = octaves - step * static_cast<float>(random.Below(3));
      const uint64_t missing = semantics::kFullWeight - MassOf(body);
      for (const uint64_t more : {0, 1}) {
        std::vector<float> row = body;
        Fill(row, missing + more);
        row.push_back(0.0f);
        const Batch batch({row}, dtype());
        const SelectParams params{.temperature = kOctaves, .top_p = 0.5f};
        const SelectInput input{batch.view(), {&params, 1}};
        SCOPED_TRACE(testing::Message() << octaves << " octaves, vocab " << vocab << " + " << more);
        EXPECT_EQ(Certified(input)[0].count, 1 + static_cast<int32_t>(more));
      }
    }
  }
}

// A mass far above 2^53 in which one unit decides: of heavy tokens of one weight and different
// values half are kept; so few light ones that they do not disturb the guess, of an odd weight
// each, make up the difference between the first one's weight and the others'.
TEST_P(Certificate, OneUnitOfAHugeMassDecides) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  if (dtype() == DType::kF16) GTEST_SKIP() << "has no values so close to 0";
  Random random(45);
  const uint64_t heavy = MassOf({-0x1p-30f});
  const size_t pairs = 150'000;
  for (const size_t more : {0, 1}) {
    std::vector<float> row;
    for (size_t i = 0; i < 2 * pairs + 1; ++i) {
      row.push_back(-0x1p-30f * (1.0f + static_cast<float>(i % 8) * 0.125f));
    }
    const uint64_t missing = semantics::kFullWeight - heavy + more;
    const uint64_t light = MassOf({-33.25f});
    row.insert(row.end(), missing / light, -33.25f);
    row.insert(row.end(), missing % light, -39.25f);
    row.push_back(0.0f);
    for (size_t i = row.size(); i > 1; --i) {  // else whole vectors add up to round numbers
      std::swap(row[i - 1], row[static_cast<size_t>(random.Below(static_cast<int64_t>(i)))]);
    }
    const Batch batch({row}, dtype());
    const SelectParams params{.temperature = kOctaves, .top_p = 0.5f};
    const SelectInput input{batch.view(), {&params, 1}};
    EXPECT_EQ(Certified(input)[0].count, 1 + static_cast<int32_t>(pairs + more)) << more;
  }
}

// The same among the survivors of top-k, which are weighed as a list: all tokens but one.
TEST_P(Certificate, OneUnitOfAHugeMassOfAListDecides) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  Random random(47);
  const size_t pairs = 150'000;
  for (const size_t more : {0, 1}) {
    std::vector<float> row(2 * pairs - 1, 0.0f);
    uint64_t missing = semantics::kFullWeight + more;
    while (missing > uint64_t{1} << 30) {
      row.push_back(-16.125f - 0.125f * static_cast<float>(random.Below(4)));
      missing -= MassOf({row.back()});
    }
    Fill(row, missing);
    row.push_back(-41.0f);  // the one that top-k drops
    const Batch batch({row}, dtype());
    const SelectParams params{
        .temperature = kOctaves, .top_k = static_cast<int32_t>(row.size()) - 1, .top_p = 0.5f};
    const SelectInput input{batch.view(), {&params, 1}};
    EXPECT_EQ(Certified(input)[0].count, static_cast<int32_t>(pairs + more)) << more;
  }
}

// The ids of candidates decide the draw: few and many of them in a group of vectors, and ties that
// are dropped.
TEST_P(Certificate, DrawsFromCandidatesGiveTheDefinition) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  Random random(48);
  for (const RowKind kind : kAllRowKinds) {
    std::vector<std::vector<float>> rows(4);
    for (std::vector<float>& row : rows) row = MakeRow(kind, 5003, random);
    const Batch batch(rows, dtype());
    for (const SelectParams& params :
         {SelectParams{.top_k = 5}, SelectParams{.top_k = 300}, SelectParams{.top_k = 1500},
          SelectParams{.top_k = 4500, .top_p = 0.99f}, SelectParams{.top_p = 0.5f},
          SelectParams{.top_p = 0.999f}}) {
      std::vector<NoiseKey> keys;
      for (uint32_t r = 0; r < rows.size(); ++r) keys.push_back({random.Bits(), r, 0});
      const SelectInput input{batch.view(), {&params, 1}, keys};
      EXPECT_TRUE(SameSequence(Sampled(input, DrawMethod::kGumbel, backend()),
                               Sampled(input, DrawMethod::kGumbel, Backend::kRef)))
          << Name(kind) << " k " << params.top_k << " p " << params.top_p;
    }
  }
}

// The vectors that a guess samples lie above or below the rest of the row, so that a band of values
// misses the boundary on either side.
TEST_P(Certificate, SamplesThatMisleadGiveTheDefinition) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  Random random(49);
  constexpr size_t kStep = 1000;
  for (const float shift : {-6.0f, -3.0f, 2.0f, 4.0f}) {
    if (kSlowdown > 1 && std::abs(shift) > 3.0f) continue;  // one to either side
    std::vector<float> row = MakeRow(RowKind::kNormal, 255 * kStep + 16, random);
    for (size_t i = 0; i < row.size(); ++i) row[i] += i % kStep < 16 ? shift : 0.0f;
    const Batch batch({row}, dtype());
    for (const float p : {0.3f, 0.7f, 0.95f}) {
      if (kSlowdown > 1 && p != 0.7f) continue;
      SCOPED_TRACE(testing::Message() << shift << " p " << p);
      ExpectDefinition(batch, {.top_p = p});
    }
  }
}

// The lowest finite value is a token like any other, beside masked ones and without them.
TEST_P(Certificate, LowestFiniteValueIsKept) {
  if (dtype() == DType::kF16) GTEST_SKIP() << "has no such value";
  const float lowest = dtype() == DType::kF32 ? semantics::kLowestValue : -0x1.fep+127f;
  for (const float other : {1.0f, -std::numeric_limits<float>::infinity()}) {
    std::vector<float> row(141, other);
    row[3] = 2.0f;
    row[70] = row[140] = lowest;
    const Batch batch({row}, dtype());
    for (const SelectParams& params : {SelectParams{}, SelectParams{.top_k = 140}}) {
      ExpectDefinition(batch, params);
    }
  }
}

// So flat that no table of powers can tell the tokens apart, up to all weights the same; and so
// steep, or so far from 0, that it would be read out of its range.
TEST_P(Certificate, TemperaturesFarOutOfRangeGiveTheDefinition) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  Random random(42);
  for (const RowKind kind : kAllRowKinds) {
    SCOPED_TRACE(Name(kind));
    const Batch batch({MakeRow(kind, 7609, random)}, dtype());
    for (const float temperature : {0.01f, 1e3f, 1e5f, 1e6f, 3e6f, 1e9f, 1e20f, 1e37f, 3.4e38f}) {
      for (const float p : {1e-3f, 0.3f, 0.9f, 0.99999994f}) {
        if (kSlowdown > 1 && p != 0.9f) continue;
        SCOPED_TRACE(testing::Message() << "T " << temperature << " p " << p);
        ExpectDefinition(batch, {.temperature = temperature, .top_p = p});
      }
    }
  }
}

// So far from 0 that an offset in steps of the table is no exact fp32 integer any more.
TEST_P(Certificate, RowsVeryFarFromZeroGiveTheDefinition) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "is what the others are compared with";
  if (dtype() != DType::kF32) GTEST_SKIP() << "has no fine values there";
  Random random(46);
  for (const float shift : {-1e6f, -1e5f, 1e5f, 1e6f}) {
    for (const RowKind kind : {RowKind::kPeaked, RowKind::kMid, RowKind::kNormal}) {
      std::vector<float> row = MakeRow(kind, 50'000, random);
      for (float& x : row) x += shift;
      const Batch batch({row}, dtype());
      for (const float p : {0.5f, 0.9f, 0.999f}) {
        if (kSlowdown > 1 && p != 0.9f) continue;
        SCOPED_TRACE(testing::Message() << Name(kind) << " + " << shift << " p " << p);
        ExpectDefinition(batch, {.top_p = p});
        ExpectDefinition(batch, {.temperature = 0.3f, .top_p = p});
      }
    }
  }
}

// At every place of a row of two groups of vectors and a part of one, alone and between candidates.
TEST_P(Certificate, NanIsSeenAtEveryPlace) {
  Random random(43);
  const std::vector<float> sound = MakeRow(RowKind::kNormal, 141, random);
  for (const SelectParams& params :
       {SelectParams{.temperature = 0.0f}, SelectParams{}, SelectParams{.top_k = 3},
        SelectParams{.top_p = 0.5f}, SelectParams{.top_k = 100, .top_p = 0.9f}}) {
    std::vector<std::vector<float>> rows(sound.size(), sound);
    for (size_t i = 0; i < rows.size(); ++i) rows[i][i] = std::numeric_limits<float>::quiet_NaN();
    const Batch batch(rows, dtype());
    const std::vector<Cut> cuts = Certified({batch.view(), {&params, 1}});
    for (size_t i = 0; i < cuts.size(); ++i) {
      EXPECT_EQ(cuts[i].status, RowStatus::kNanInput) << "at " << i;
    }
  }
}

// An ordinary row is read once, and a few hundred candidates again.
TEST_P(Certificate, OrdinaryRowsTakeOnePass) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "has one way only";
  Random random(44);
  constexpr int64_t kVocab = 100'000;
  for (const RowKind kind : {RowKind::kPeaked, RowKind::kMid, RowKind::kFlat, RowKind::kNormal}) {
    const Batch batch({MakeRow(kind, kVocab, random)}, dtype());
    for (const SelectParams& params :
         {SelectParams{.top_k = 50}, SelectParams{.top_k = 50, .top_p = 0.9f},
          SelectParams{.temperature = 0.5f, .top_p = 0.5f}}) {
      if (kind == RowKind::kNormal && params.top_k == 0) continue;  // the boundary lies in its body
      const Workspace workspace(SelectWorkspaceBytes(batch.view(), {backend()}));
      Cut cut;
      SelectWork work;
      Select({batch.view(), {&params, 1}}, {&cut, 1}, {},
             {backend(), {}, workspace.span(), nullptr, SelectAlgorithm::kCertified, {&work, 1}});
      EXPECT_LT(work.elements_read, kVocab + kVocab / 20)
          << Name(kind) << " k " << params.top_k << " p " << params.top_p;
    }
  }
}

SLUICE_FOR_EACH_BACKEND(Certificate);

}  // namespace
}  // namespace sluice::test
