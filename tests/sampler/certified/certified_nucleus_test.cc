// Top-p on all tokens from a certified head: rows whose masses are known by arithmetic, hostile
// ones, and a fault in what is known of the mass.
#include "sampler/certified/certified_nucleus.h"

#include <gtest/gtest.h>

#include <set>

#include "head/certified/cuda/survivor_budget.h"
#include "semantics/temperature.h"
#include "tests/head/certified_draws.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

constexpr DrawMethod kMethods[] = {DrawMethod::kGumbel, DrawMethod::kCdf};

// Heads of one element a row: a hidden state of 1 has them as its logits.
Rows HeadOf(const std::vector<float>& logits) {
  Rows rows;
  for (const float x : logits) rows.push_back({x});
  return rows;
}

struct Hostile {
  const char* name;
  std::vector<float> logits;
};

std::vector<Hostile> HostileRows() {
  constexpr size_t kVocab = 1100;  // the budget of three states is a quarter
  std::vector<Hostile> rows = {{"flat", std::vector<float>(kVocab, 1.0f)},
                               {"zero", std::vector<float>(kVocab, 0.0f)},
                               {"one huge", std::vector<float>(kVocab, 1.0f)},
                               {"two levels", std::vector<float>(kVocab, 1.0f)},
                               {"ties at the end", std::vector<float>(kVocab, -20.0f)},
                               {"slope", {}},
                               {"few", std::vector<float>(3, 0.5f)},
                               {"one", {2.0f}}};
  rows[2].logits[700] = 60.0f;
  for (size_t v = 0; v < kVocab; v += 2) rows[3].logits[v] = 3.0f;
  for (size_t v = 100; v < 120; ++v) rows[4].logits[v] = 4.0f;  // of equal weight
  for (size_t v = 0; v < kVocab; ++v) rows[5].logits.push_back(static_cast<float>(v % 97) * 0.25f);
  return rows;
}

class CertifiedNucleusOf : public BackendTest {};

TEST_P(CertifiedNucleusOf, HostileRowsIsTheDenseHeads) {
  Random random(1);
  int number = 0;
  for (const Hostile& hostile : HostileRows()) {
    const Batch weight(HeadOf(hostile.logits), dtype());
    const Batch hidden(Rows(3, std::vector<float>{1.0f}), DType::kF32);
    const CertifiedInput input{Matrix(hidden), {}};
    std::vector<SelectParams> all;
    for (const float p : {0.9f, 0.5f, 0.05f, 1e-12f, 0.99999994f}) {
      all.push_back({.top_p = p});
      all.push_back({.temperature = 5.0f, .top_p = p});
      all.push_back({.temperature = 0.1f, .top_p = p, .min_p = 0.3f});
      all.push_back({.top_k = 7, .top_p = p, .xtc_probability = 0.5f});
      for (size_t i = all.size() - 3; i < all.size(); ++i) {
        all[i].profile.ties = random.Coin() ? Ties::kAll : Ties::kLowestId;
        all[i].profile.top_k_top_p = TopKTopP::kJoint;
        all[i].profile.min_p_stage = MinPStage::kLast;
        all[i].profile.top_p_boundary =
            random.Coin() ? TopPBoundary::kInclusive : TopPBoundary::kExclusive;
      }
    }
    const std::vector<NoiseKey> keys = {{1, 2}, {3, 4}, {5, 6}};
    std::vector<CertifiedHead> heads;
    for (const CertificateKind kind : kCertificateKinds) {
      heads.push_back(
          {{Matrix(weight)}, HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5})});
    }
    for (const SelectParams& params : all) {
      if (!IsTried(number++)) continue;
      for (const DrawMethod method : kMethods) {
        const auto expected = DenseSample(heads[0].head(), input, {&params, 1}, keys, method);
        for (const CertifiedHead& head : heads) {
          const Drawn drawn = RunSample(head, input, {&params, 1}, keys, method, {backend()});
          ASSERT_TRUE(SameSequence(drawn.results, expected))
              << hostile.name << " " << params.top_p << " " << Name(head.planes().kind());
          const Drawn ids = RunSampleIds(head, input, {&params, 1}, keys, method, {backend()});
          ASSERT_TRUE(SameSequence(ids.results, WithoutCuts(expected)))
              << hostile.name << " " << params.top_p << " " << Name(head.planes().kind());
        }
      }
    }
  }
}

// 300 tokens with 1 % of the mass and less each, and far below them all others, of which some 3e-4
// of the mass is not known: where top-p ends between two tokens, no interval of the mass tells.
TEST_P(CertifiedNucleusOf, AnEndBetweenTheBoundsIsLeftToTheDenseHead) {
  constexpr int64_t kVocab = 40000;
  constexpr float kHidden = 16.0f;
  std::vector<float> logits(kVocab, 0.125f);
  for (int64_t t = 0; t < 300; ++t) {
    logits[static_cast<size_t>(t * 16)] = 1.0f - 0.001f * static_cast<float>(t);
  }
  const Batch weight(HeadOf(logits), dtype());
  const Batch hidden({{kHidden}}, DType::kF32);
  const CertifiedHead head({Matrix(weight)}, HeadPlanes::Build(Matrix(weight), {.seed = 5}));
  const double scale = static_cast<double>(semantics::ScalesOf(SelectParams{}).filter);
  const auto weight_of = [&](int64_t v) {
    return std::exp2(static_cast<double>(kHidden * (weight.Get(v, 0) - 1.0f)) * scale);
  };
  double mass = 0.0;
  for (int64_t v = 0; v < kVocab; ++v) mass += weight_of(v);
  double of_first = 0.0;
  for (int64_t t = 0; t < 40; ++t) of_first += weight_of(t * 16);
  for (const bool is_between : {true, false}) {
    const double wanted = is_between ? of_first : of_first + 0.5 * weight_of(40 * 16);
    const SelectParams params = {.top_p = static_cast<float>(wanted / mass)};
    int64_t decided = 0;
    for (uint64_t seed = 0; seed < Rounds(6); ++seed) {
      const NoiseKey key{seed, 9};
      const CertifiedInput input{Matrix(hidden), {}};
      const auto expected =
          DenseSample(head.head(), input, {&params, 1}, {&key, 1}, DrawMethod::kGumbel);
      const Drawn drawn =
          RunSample(head, input, {&params, 1}, {&key, 1}, DrawMethod::kGumbel, {backend()});
      EXPECT_TRUE(SameSequence(drawn.results, expected));
      EXPECT_EQ(drawn.rows[0].path, is_between ? CertifiedPath::kDense : CertifiedPath::kPlanes);
      EXPECT_EQ(drawn.rows[0].reason, is_between ? DenseReason::kMass : DenseReason::kNone);
      const Drawn id =
          RunSampleIds(head, input, {&params, 1}, {&key, 1}, DrawMethod::kGumbel, {backend()});
      EXPECT_EQ(id.results[0].id, expected[0].id);
      decided += id.rows[0].path == CertifiedPath::kPlanes ? 1 : 0;
    }
    // The token itself is seldom the one at the end.
    EXPECT_GE(decided, Rounds(4));
  }
}

SLUICE_FOR_EACH_BACKEND(CertifiedNucleusOf);

// The second plane of strict heads, where the first leaves more open than may be computed.
TEST(CertifiedNucleus, ReadsTheSecondPlaneBeforeTheDenseHead) {
  Random random(5);
  const Rows rows = MakeHead(HeadKind::kNormal, 6000, 512, random);
  const Batch weight(rows, DType::kBf16);
  Rows states;
  for (int r = 0; r < 16; ++r) {
    states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
    for (float& h : states.back()) h *= 0.7f;
  }
  const Batch hidden(states, DType::kF32);
  const SelectParams params = {.top_p = 0.9f};
  std::vector<NoiseKey> keys;
  for (uint32_t r = 0; r < 16; ++r) keys.push_back({7, r});
  int64_t dense_rows[2] = {};
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight)},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
    const CertifiedInput input{Matrix(hidden), {}};
    const Drawn drawn = RunSampleIds(head, input, {&params, 1}, keys, DrawMethod::kGumbel, {});
    const auto expected = DenseSample(head.head(), input, {&params, 1}, keys, DrawMethod::kGumbel);
    EXPECT_TRUE(SameSequence(drawn.results, WithoutCuts(expected)));
    dense_rows[static_cast<int>(kind)] = drawn.stats.dense_rows;
  }
  EXPECT_GT(dense_rows[static_cast<int>(CertificateKind::kDither4)], 4);
  EXPECT_LE(dense_rows[static_cast<int>(CertificateKind::kStrict)], 1);
}

// Twenty equal tokens, of which seven are kept, or all.
TEST(CertifiedNucleus, JointWithTopKKeepsTheFirstK) {
  std::vector<float> logits(1300, -20.0f);
  for (size_t v = 100; v < 120; ++v) logits[v] = 4.0f;
  const Batch weight(HeadOf(logits), DType::kF32);
  const Batch hidden(Rows(128, std::vector<float>{1.0f}), DType::kF32);
  const CertifiedInput input{Matrix(hidden), {}};
  std::vector<NoiseKey> keys;
  for (uint32_t r = 0; r < 128; ++r) keys.push_back({11, r});
  for (const Ties ties : {Ties::kLowestId, Ties::kAll}) {
    SelectParams params = {.top_k = 7, .top_p = 0.9f};
    params.profile.top_k_top_p = TopKTopP::kJoint;
    params.profile.ties = ties;
    for (const CertificateKind kind : kCertificateKinds) {
      const CertifiedHead head({Matrix(weight)},
                               HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
      const auto expected =
          DenseSample(head.head(), input, {&params, 1}, keys, DrawMethod::kGumbel);
      std::set<int32_t> drawn;
      for (const TokenResult& result : expected) drawn.insert(result.id);
      EXPECT_TRUE(ties == Ties::kAll ? drawn.size() > 7 : drawn.size() == 7) << drawn.size();
      const Drawn ids = RunSampleIds(head, input, {&params, 1}, keys, DrawMethod::kGumbel, {});
      EXPECT_TRUE(SameSequence(ids.results, WithoutCuts(expected)));
      EXPECT_EQ(ids.stats.dense_rows, 0);
    }
  }
}

// One row, with what is known of its mass in the test's hands.
class PlantedMass : public ::testing::Test {
 protected:
  PlantedMass() {
    // Half of the mass each, and all of it known as near as can be: rows of zeros have no width.
    std::vector<float> logits(kVocab, 0.0f);
    for (size_t v = 0; v < 40; ++v) logits[v * 5] = 1.0f - 0.01f * static_cast<float>(v);
    const Batch weight(HeadOf(logits), DType::kF32);
    const Batch hidden({{6.0f}}, DType::kF32);
    const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.seed = 5});
    const PlaneView view = PlaneAccess::View(planes);
    const DenseHead head{Matrix(weight)};
    const semantics::Row state{Matrix(hidden).Row(0), DType::kF32, 1};
    const CertifiedInput input{Matrix(hidden), {}};
    for (const bool is_faulty : {false, true}) {
      ScoreTable table = kScoreRef;
      if (is_faulty) table.around = TooSmall;
      for (uint64_t seed = 0; seed < 200; ++seed) {
        Answer(head, view, state, table, {seed, 3}, seed == 0, is_faulty);
      }
    }
    for (uint64_t seed = 0; seed < 200; ++seed) {
      const NoiseKey key{seed, 3};
      const TokenResult result =
          DenseSample(head, input, {&params_, 1}, {&key, 1}, DrawMethod::kGumbel)[0];
      dense_ids_.push_back(result.id);
      dense_count_ = result.cut.count;
    }
  }

  static constexpr size_t kVocab = 6000;
  const SelectParams params_ = {.top_p = 0.4f};
  std::vector<int32_t> ids_[2];  // sound, faulty
  int64_t counts_[2] = {};
  std::vector<int32_t> dense_ids_;
  int64_t dense_count_ = 0;

 private:
  static MassBounds TooSmall(const Intervals& intervals, int64_t size,
                             const MassQuestion& question) {
    MassBounds around = kScoreRef.around(intervals, size, question);
    around.rest.least = around.rest.least / 10 * 9;
    around.rest.most = around.rest.most / 10 * 9;
    return around;
  }

  void Answer(const DenseHead& head, const PlaneView& planes, const semantics::Row& hidden,
              const ScoreTable& table, const NoiseKey& key, bool counts, bool is_faulty) {
    const auto size = static_cast<size_t>(planes.tiles() * kTileRows);
    std::vector<HiddenGroup> groups(static_cast<size_t>(planes.groups));
    HiddenState state;
    ASSERT_TRUE(EncodeHidden(hidden, planes, groups.data(), state));
    std::vector<float> scores(size), widths(size);
    const Intervals intervals{scores.data(), widths.data()};
    table.score(planes, {}, {&state, 1}, {&intervals, 1}, 0, planes.tiles());
    std::vector<semantics::Token> tokens(size), workspace(size);
    std::vector<int32_t> ids(size);
    std::vector<uint8_t> is_refined(size);
    const semantics::TokenAdjust none;
    RowCertificate certificate(
        {head, planes, DenseHeadTableFor(Backend::kRef), table}, {hidden, state, nullptr, none},
        {intervals, tokens.data(), ids.data(), is_refined.data()}, SurvivorBudget(planes.vocab, 1));
    ASSERT_TRUE(certificate.Start());
    std::optional<CertifiedTokens> top = certificate.Top(1);
    ASSERT_TRUE(top.has_value());
    const semantics::Token first = top->data[0];
    CertifiedNucleus nucleus(certificate, params_, key, first, planes.vocab);
    if (counts) {
      semantics::Interval kept;
      ASSERT_TRUE(nucleus.Keep(*top, kept));
      counts_[is_faulty ? 1 : 0] = kept.end - kept.begin;
    }
    CertifiedGumbel gumbel(certificate, DrawTableFor(Backend::kRef), key, first,
                           semantics::ScalesOf(params_).draw, planes.vocab,
                           reinterpret_cast<std::byte*>(workspace.data()));
    int32_t id = -1;
    ASSERT_EQ(nucleus.Draw(gumbel, id), DenseReason::kNone);
    ids_[is_faulty ? 1 : 0].push_back(id);
  }
};

TEST_F(PlantedMass, BoundsATenthTooSmallGiveAnotherSetAndOtherTokens) {
  EXPECT_EQ(counts_[0], dense_count_);
  EXPECT_EQ(ids_[0], dense_ids_);
  EXPECT_NE(counts_[1], dense_count_);
  EXPECT_NE(ids_[1], dense_ids_);
}

}  // namespace
}  // namespace sluice::test
