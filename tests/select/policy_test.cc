// The policy table has one answer for every request.
#include "select/policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

constexpr Backend kTunedBackends[] = {Backend::kCpuAvx2, Backend::kCpuAvx512};
constexpr SelectKind kKinds[] = {SelectKind::kTopK, SelectKind::kTopP, SelectKind::kTopKTopP,
                                 SelectKind::kOther};

TEST(Policy, AnswersEveryKindAndVocabularyAndNeverAuto) {
  for (const Backend backend : kTunedBackends) {
    for (const SelectKind kind : kKinds) {
      for (int64_t vocab = 1; vocab <= kMaxVocab; vocab += 1 + vocab / 64) {
        EXPECT_NE(ChooseAlgorithm(backend, kind, vocab), SelectAlgorithm::kAuto) << vocab;
      }
      EXPECT_NE(ChooseAlgorithm(backend, kind, kMaxVocab), SelectAlgorithm::kAuto);
    }
  }
}

TEST(Policy, HasRowsForEveryTunedBackendAndKind) {
  for (const Backend backend : kTunedBackends) {
    for (const SelectKind kind : kKinds) {
      EXPECT_LT(policy::kFirstRows[policy::Group(backend, kind)], policy::kRows);
    }
  }
}

TEST(Policy, RowsHoldUpToAndWithTheirVocabulary) {
  int64_t smallest = 1;
  for (size_t i = 0; i < policy::kRows; ++i) {
    const PolicyRow& row = kPolicy[i];
    if (i == policy::kFirstRows[policy::Group(row.backend, row.kind)]) smallest = 1;
    EXPECT_EQ(ChooseAlgorithm(row.backend, row.kind, smallest), row.algorithm);
    EXPECT_EQ(ChooseAlgorithm(row.backend, row.kind, row.largest_vocab), row.algorithm);
    smallest = row.largest_vocab + 1;
  }
}

TEST(Policy, IsCertifiedForABackendWithoutRows) {
  EXPECT_EQ(ChooseAlgorithm(Backend::kRef, SelectKind::kTopK, 100), SelectAlgorithm::kCertified);
}

TEST(Policy, KindFollowsTheFiltersThatAreOn) {
  EXPECT_EQ(KindOf({.top_k = 50}, 100), SelectKind::kTopK);
  EXPECT_EQ(KindOf({.top_p = 0.9f}, 100), SelectKind::kTopP);
  EXPECT_EQ(KindOf({.top_k = 50, .top_p = 0.9f}, 100), SelectKind::kTopKTopP);
  EXPECT_EQ(KindOf({.top_k = 100, .top_p = 0.9f}, 100), SelectKind::kTopP);
  EXPECT_EQ(KindOf({.top_k = -1}, 100), SelectKind::kOther);
  for (const SelectParams& params :
       std::vector<SelectParams>{{.top_k = 50, .min_p = 0.1f},
                                 {.top_k = 50, .top_n_sigma = 1.0f},
                                 {.top_p = 0.9f, .typical_p = 0.9f},
                                 {.top_p = 0.9f, .xtc_probability = 0.5f}}) {
    EXPECT_EQ(KindOf(params, 100), SelectKind::kOther);
  }
}

}  // namespace
}  // namespace sluice
