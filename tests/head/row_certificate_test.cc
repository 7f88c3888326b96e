// One row's certificate over intervals that a test has made: what becomes of one that is narrowed.
#include "head/certified/row_certificate.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "head/certified/cuda/survivor_budget.h"
#include "tests/head/heads.h"

namespace sluice::test {
namespace {

struct Interval {
  float score;
  float width;
};

// Sixteen tokens of one element, whose weights are the logits of the hidden state 1. Their
// intervals by the first plane and by both are the test's, and every token is penalised.
class NarrowedRow {
 public:
  static constexpr int32_t kTokens = 16;

  NarrowedRow(float logit, float repetition, Interval first, Interval both)
      : weight_(Rows(kTokens, {logit}), DType::kF32),
        head_{Matrix(weight_), {}},
        planes_(HeadPlanes::Build(head_.weight, {.kind = CertificateKind::kStrict})),
        view_(PlaneAccess::View(planes_)),
        scores_(kTokens, first.score),
        widths_(kTokens, first.width),
        tokens_(kTokens),
        ids_(kTokens),
        refined_(kTokens),
        scores_before_(kTokens) {
    low_ = {both.score - first.score, both.width};
    table_.refine = [](const PlaneView&, const HiddenState&, int64_t row, const Intervals& of) {
      of.scores[row] += low_.score;  // as backends do
      of.widths[row] = low_.width;
    };
    for (int32_t id = 0; id < kTokens; ++id) counts_.push_back({id, 1, 0, 0});
    semantics::AdjustInput adjust;
    adjust.penalties.repetition = repetition;
    adjust.counts = counts_;
    adjust_ = semantics::TokenAdjust(adjust);
    certificate_.emplace(HeadSource{head_, view_, kDenseHeadRef, table_},
                         RowSource{{&hidden_, DType::kF32, 1}, state_, nullptr, adjust_},
                         RowMemory{{scores_.data(), widths_.data()},
                                   tokens_.data(),
                                   ids_.data(),
                                   refined_.data(),
                                   scores_before_.data()},
                         SurvivorBudget(view_.vocab, 1));
  }

  RowCertificate& certificate() { return *certificate_; }
  float score(size_t id) const { return scores_[id]; }
  float width(size_t id) const { return widths_[id]; }

 private:
  static inline Interval low_;  // what the second plane adds

  const float hidden_ = 1.0f;
  Batch weight_;
  DenseHead head_;
  HeadPlanes planes_;
  PlaneView view_;
  ScoreTable table_ = kScoreRef;
  HiddenState state_;
  std::vector<float> scores_, widths_;
  std::vector<semantics::Token> tokens_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> refined_;
  std::vector<float> scores_before_;
  std::vector<semantics::TokenCount> counts_;
  semantics::TokenAdjust adjust_;
  std::optional<RowCertificate> certificate_;
};

// An interval by both planes need not lie in the one by the first. What it loses an end by, when it
// is adjusted, is an overflow that the wider one did not have: the token is computed, and the row
// goes on with intervals that all have ends.
struct LostEnd {
  float logit;
  float repetition;
  Interval first;
  Interval both;
  float adjusted;
};

class RefinedIntervals : public ::testing::TestWithParam<LostEnd> {};

TEST_P(RefinedIntervals, ThatLoseAnEndByAnAdjustmentAreComputed) {
  const LostEnd& lost = GetParam();
  NarrowedRow row(lost.logit, lost.repetition, lost.first, lost.both);
  RowCertificate& certificate = row.certificate();
  ASSERT_TRUE(certificate.Start());
  ASSERT_EQ(certificate.status(), RowStatus::kOk);
  ASSERT_EQ(certificate.survivors(), 0) << "the first plane's interval has both ends";
  certificate.Refine(3);
  EXPECT_EQ(row.width(3), 0.0f);
  EXPECT_EQ(row.score(3), lost.adjusted);
  EXPECT_GT(row.width(4), 0.0f);
  EXPECT_EQ(certificate.survivors(), 1);
  EXPECT_EQ(certificate.refined(), 1);
  EXPECT_TRUE(certificate.RefineFrom(-semantics::Infinity()));
  for (size_t id = 0; id < NarrowedRow::kTokens; ++id) {
    EXPECT_EQ(row.width(id), 0.0f) << id;
    EXPECT_EQ(row.score(id), lost.adjusted) << id;
  }
  EXPECT_EQ(certificate.LargestOpen(), -semantics::Infinity());
}

INSTANTIATE_TEST_SUITE_P(
    All, RefinedIntervals,
    ::testing::Values(LostEnd{2.75f, 1e-38f, {2.0f, 1.0f}, {3.0f, 0.75f}, 2.75f / 1e-38f},
                      LostEnd{-1.0f, 3e38f, {-0.25f, 0.75f}, {-1.0f, 0.25f}, -1.0f * 3e38f}));

// An interval that keeps its ends is the adjusted one, and nothing is computed.
TEST(RefinedIntervals, ThatKeepTheirEndsAreAdjustedFromTheScoreBefore) {
  NarrowedRow row(2.0f, 2.0f, {2.5f, 1.0f}, {2.0f, 0.25f});
  RowCertificate& certificate = row.certificate();
  ASSERT_TRUE(certificate.Start());
  EXPECT_LE(row.score(0) - row.width(0), 0.75f);
  EXPECT_GE(row.score(0) + row.width(0), 1.75f);
  certificate.Refine(0);
  EXPECT_EQ(row.score(0), 1.0f);
  EXPECT_NEAR(row.width(0), 0.125f, 1e-6f);  // widths are rounded up, by a few units
  EXPECT_GE(row.width(0), 0.125f);
  certificate.Refine(0);  // once
  EXPECT_EQ(row.score(0), 1.0f);
  EXPECT_EQ(certificate.refined(), 1);
  EXPECT_EQ(certificate.survivors(), 0);
}

}  // namespace
}  // namespace sluice::test
