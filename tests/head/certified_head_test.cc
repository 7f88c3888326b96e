// The certified head: the dense head's first tokens and logits, bit for bit, whatever the head.
#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

#include "head/certified/row_certificate.h"
#include "semantics/adjust/mask.h"
#include "tests/head/certified.h"
#include "tests/support/bad_input.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

class CertifiedTop : public BackendTest {
 protected:
  void ExpectTopOfDense(const CertifiedHead& head, const CertifiedInput& input, int32_t k,
                        const std::string& what) {
    TopResult actual = RunTopK(head, input, k, {backend()});
    const TopResult expected = DenseTopK(head.head(), input, k);
    ASSERT_EQ(actual.status, expected.status) << what;
    ASSERT_TRUE(SameSequence(actual.ids, expected.ids)) << what;
    ASSERT_TRUE(SameSequence(actual.logits, expected.logits)) << what;
  }
};

TEST_P(CertifiedTop, IsTheDenseHeadsForEveryKindOfHeadAndState) {
  Random random(1);
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const CertificateKind kind : kCertificateKinds) {
      const int64_t vocab = random.Between(1, 700);
      const int64_t dim = random.Between(1, 400);
      const Rows rows = Representable(MakeHead(head_kind, vocab, dim, random), dtype());
      const Batch weight(rows, dtype(), random.Below(4));
      const std::vector<float> bias = MakeBias(vocab, random);
      const CertifiedHead head({Matrix(weight), bias},
                               HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
      Rows states;
      for (const HiddenKind hidden_kind : kAllHiddenKinds) {
        states.push_back(MakeHidden(hidden_kind, rows, random));
      }
      const Batch hidden(states, kAllDTypes[random.Below(3)], random.Below(3));
      for (const int64_t k : {int64_t{1}, int64_t{10}, vocab}) {
        ExpectTopOfDense(
            head, {Matrix(hidden), {}}, static_cast<int32_t>(std::min<int64_t>(k, vocab)),
            std::to_string(static_cast<int>(head_kind)) + " " + std::string(Name(kind)) + " " +
                std::to_string(vocab) + " x " + std::to_string(dim) + " k " + std::to_string(k));
      }
    }
  }
}

// One row, one element, one more than a group of them; and weights or states that are all zero.
TEST_P(CertifiedTop, OfTheSmallestHeadsAndOfZerosIsTheDenseHeads) {
  Random random(9);
  for (const int64_t vocab : {1, 2, 16, 17, 400}) {
    for (const int64_t dim : {1, 127, 128, 129}) {
      for (const bool is_zero : {false, true}) {
        Rows rows = MakeHead(HeadKind::kNormal, vocab, dim, random);
        if (is_zero) rows.assign(rows.size(), std::vector<float>(static_cast<size_t>(dim)));
        const Batch weight(rows, dtype());
        const std::vector<float> bias = MakeBias(vocab, random);
        const Batch hidden({MakeHidden(HiddenKind::kPeaked, rows, random),
                            MakeHidden(HiddenKind::kZero, rows, random)},
                           dtype());
        for (const CertificateKind kind : kCertificateKinds) {
          const CertifiedHead head({Matrix(weight), bias},
                                   HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
          for (const int32_t k : {1, static_cast<int32_t>(std::min<int64_t>(vocab, 5))}) {
            ExpectTopOfDense(head, {Matrix(hidden), {}}, k,
                             std::to_string(vocab) + " x " + std::to_string(dim));
          }
        }
      }
    }
  }
}

TEST_P(CertifiedTop, ReadsOnlyAllowedTokens) {
  Random random(2);
  const Rows rows = MakeHead(HeadKind::kTrained, 1000, 200, random);
  const Batch weight(rows, dtype());
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight)},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
    Rows states;
    for (int r = 0; r < 6; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
    const Batch hidden(states, DType::kF32);
    std::vector<int32_t> bitmask(6 * 32, 0);  // the first row: none
    for (size_t r = 1; r < 6; ++r) {
      for (size_t v = 0; v < 1000; ++v) {
        if (!random.Coin(r == 1 ? 0.01 : 0.2 * static_cast<double>(r))) continue;
        bitmask[r * 32 + v / 32] |= static_cast<int32_t>(1u << v % 32);
      }
    }
    bitmask[5 * 32 + 31] = -1;  // bits behind the vocabulary
    const CertifiedInput input{Matrix(hidden), bitmask};
    for (const int32_t k : {1, 7, 40}) ExpectTopOfDense(head, input, k, std::to_string(k));
    const TopResult top = RunTopK(head, input, 7, {backend()});
    EXPECT_EQ(top.rows[0].path, CertifiedPath::kAllowed);
    EXPECT_EQ(top.rows[0].survivors, 0);
    EXPECT_EQ(top.status[0], RowStatus::kEmptySupport);
    EXPECT_EQ(top.rows[1].path, CertifiedPath::kAllowed);
    EXPECT_LE(top.rows[1].survivors, 30);
    EXPECT_EQ(top.rows[5].path, CertifiedPath::kPlanes);
  }
}

TEST_P(CertifiedTop, OfAStateThatIsNotFiniteIsAStatusAndTouchesNoNeighbour) {
  Random random(3);
  const Rows rows = MakeHead(HeadKind::kNormal, 300, 130, random);
  const Batch weight(rows, dtype());
  const CertifiedHead head({Matrix(weight)}, HeadPlanes::Build(Matrix(weight), {.seed = 5}, {}));
  Rows states(5, MakeHidden(HiddenKind::kNormal, rows, random));
  states[1][7] = NAN;
  states[3][129] = INFINITY;
  const Batch hidden(states, DType::kF32);
  ExpectTopOfDense(head, {Matrix(hidden), {}}, 5, "not finite");
  const TopResult top = RunTopK(head, {Matrix(hidden), {}}, 5, {backend()});
  EXPECT_EQ(top.status[1], RowStatus::kNanInput);
  EXPECT_EQ(top.rows[1].path, CertifiedPath::kNothing);
  EXPECT_EQ(top.status[3], RowStatus::kPosInfInput);
  EXPECT_EQ(top.rows[3].reason, DenseReason::kHidden);
  EXPECT_EQ(top.status[4], RowStatus::kOk);
  EXPECT_EQ(top.ids[4 * 5], top.ids[0]);
}

// A product that overflows in the dense head has no interval, and is computed like there: +inf and
// NaN are the row's status, -inf is a masked token.
TEST_P(CertifiedTop, OfALogitThatOverflowsIsWhatTheDenseHeadSays) {
  if (dtype() == DType::kF16) GTEST_SKIP() << "fp16 has no weight of 1e30";
  Random random(8);
  Rows rows = MakeHead(HeadKind::kNormal, 500, 200, random);
  rows[77][5] = 1e30f;
  rows[78][6] = 1e30f;
  rows[78][6 + 128] = -1e30f;  // of the same lane
  const Batch weight(rows, dtype());
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight)},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
    Rows states(4, MakeHidden(HiddenKind::kPeaked, rows, random));
    for (Rows::value_type& state : states) state[5] = state[6] = state[6 + 128] = 0.0f;
    states[0][5] = 1e12f;
    states[1][5] = -1e12f;
    states[2][6] = states[2][6 + 128] = 1e12f;
    states[3][5] = states[3][6] = 1.0f;
    const Batch hidden(states, DType::kF32);
    for (const int32_t k : {1, 10}) {
      ExpectTopOfDense(head, {Matrix(hidden), {}}, k, std::string(Name(kind)));
    }
    const TopResult top = RunTopK(head, {Matrix(hidden), {}}, 1, {backend()});
    EXPECT_EQ(top.status[0], RowStatus::kPosInfInput);
    EXPECT_EQ(top.status[1], RowStatus::kOk);
    EXPECT_NE(top.status[2], RowStatus::kOk);
    EXPECT_EQ(top.ids[3], 77);
    for (size_t r = 0; r < 3; ++r) EXPECT_EQ(top.rows[r].path, CertifiedPath::kPlanes) << r;
  }
}

// What survives in bulk, as all tokens of a zero state do, goes to the dense head and says so.
TEST_P(CertifiedTop, FallsBackToTheDenseHeadAndSaysSo) {
  Random random(4);
  const Rows rows = MakeHead(HeadKind::kNormal, 2000, 64, random);
  const Batch weight(rows, dtype());
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight)},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
    const Rows states = {MakeHidden(HiddenKind::kPeaked, rows, random),
                         MakeHidden(HiddenKind::kZero, rows, random),
                         MakeHidden(HiddenKind::kPeaked, rows, random)};
    const Batch hidden(states, dtype());
    ExpectTopOfDense(head, {Matrix(hidden), {}}, 3, "zeros");
    const TopResult top = RunTopK(head, {Matrix(hidden), {}}, 3, {backend()});
    EXPECT_EQ(top.rows[1].path, CertifiedPath::kDense);
    EXPECT_EQ(top.rows[1].reason, DenseReason::kSurvivors);
    EXPECT_EQ(top.rows[0].path, CertifiedPath::kPlanes);
    EXPECT_EQ(top.stats.dense_rows, 1);
    EXPECT_GT(top.rows[0].margin, 0.0f);
    EXPECT_EQ(top.stats.rows, 3);
    EXPECT_GE(top.stats.bytes_read, top.stats.dense_bytes);
  }
}

TEST_P(CertifiedTop, ReadsAQuarterOfATrainedHead) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "the head is of bf16 in each of them";
  Random random(5);
  const Rows rows = MakeHead(HeadKind::kTrained, 4096, 512, random);
  const Batch weight(rows, DType::kBf16);
  const CertifiedHead head({Matrix(weight)}, HeadPlanes::Build(Matrix(weight), {.seed = 5}, {}));
  const Batch hidden({MakeHidden(HiddenKind::kPeaked, rows, random)}, DType::kF32);
  const TopResult top = RunTopK(head, {Matrix(hidden), {}}, 1, {backend()});
  EXPECT_EQ(top.rows[0].path, CertifiedPath::kPlanes);
  EXPECT_LE(top.stats.bytes_read, 0.28 * static_cast<double>(top.stats.dense_bytes));
}

TEST_P(CertifiedTop, IsTheSameInAnyBatchOnAnyParallelForAndInAnyRoundingMode) {
  Random random(6);
  const Rows rows = MakeHead(HeadKind::kTrained, 900, 150, random);
  const Batch weight(rows, dtype());
  const CertifiedHead head({Matrix(weight)}, HeadPlanes::Build(Matrix(weight), {.seed = 5}, {}));
  Rows states;
  for (int r = 0; r < 11; ++r) states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random));
  const Batch hidden(states, dtype());
  const TopResult all = RunTopK(head, {Matrix(hidden), {}}, 9, {backend()});
  auto backwards = [](void*, int64_t count, ParallelFor::Task task, void* state) {
    for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
  };
  const TopResult other =
      RunTopK(head, {Matrix(hidden), {}}, 9, {backend(), {3, nullptr, backwards}});
  EXPECT_EQ(other.ids, all.ids);
  EXPECT_TRUE(SameSequence(other.logits, all.logits));
  std::fesetround(FE_UPWARD);
  const TopResult upward = RunTopK(head, {Matrix(hidden), {}}, 9, {backend()});
  std::fesetround(FE_TONEAREST);
  EXPECT_TRUE(SameSequence(upward.logits, all.logits));
  for (size_t r = 0; r < states.size(); ++r) {
    const Batch alone({states[r]}, dtype());
    const TopResult one = RunTopK(head, {Matrix(alone), {}}, 9, {backend()});
    for (size_t i = 0; i < 9; ++i) EXPECT_EQ(one.ids[i], all.ids[r * 9 + i]);
  }
}

SLUICE_FOR_EACH_BACKEND(CertifiedTop);

// The bound cannot be spoiled from outside, but the answer can: with a token's interval moved out
// of the way the certificate holds and the answer is wrong, which the comparison above would see.
TEST(CertifiedTopChecks, NoticeAWrongInterval) {
  Random random(7);
  const Rows rows = MakeHead(HeadKind::kNormal, 500, 100, random);
  const Batch weight(rows, DType::kF32);
  const HeadPlanes planes = HeadPlanes::Build(Matrix(weight), {.seed = 5}, {});
  const Batch hidden({MakeHidden(HiddenKind::kPeaked, rows, random)}, DType::kF32);
  const PlaneView view = PlaneAccess::View(planes);
  ScoredRow scored = Scored(kScoreRef, planes, {}, Matrix(hidden))[0];
  std::vector<HiddenGroup> groups(static_cast<size_t>(view.groups));
  HiddenState state;
  const semantics::Row row{Matrix(hidden).Row(0), DType::kF32, 100};
  ASSERT_TRUE(EncodeHidden(row, view, groups.data(), state));
  const DenseHead dense{Matrix(weight)};
  const int32_t best = DenseTopK(dense, {Matrix(hidden), {}}, 1).ids[0];
  std::vector<semantics::Token> tokens(500);
  std::vector<int32_t> ids(500);
  std::vector<uint8_t> refined(500);
  for (const bool is_spoiled : {false, true}) {
    ScoredRow copy = scored;
    if (is_spoiled) copy.scores[static_cast<size_t>(best)] -= 3.0f * copy.widths[0] + 5.0f;
    const semantics::TokenAdjust none;
    RowCertificate certificate(
        {dense, view, kDenseHeadRef, kScoreRef}, {row, state, nullptr, none},
        {{copy.scores.data(), copy.widths.data()}, tokens.data(), ids.data(), refined.data()}, 256);
    ASSERT_TRUE(certificate.Start());
    const std::optional<CertifiedTokens> top = certificate.Top(1);
    ASSERT_TRUE(top.has_value());
    EXPECT_EQ(top->data[0].id == best, !is_spoiled);
  }
}

struct TopCall {
  std::vector<float> values = std::vector<float>(10 * 8, 0.5f);
  std::vector<float> bias;
  DenseHead dense{{values.data(), 10, 8, 8, DType::kF32, {}}, {}};
  std::vector<int32_t> bitmask;
  std::vector<int32_t> ids = std::vector<int32_t>(6);
  std::vector<float> logits = std::vector<float>(6);
  std::vector<RowStatus> status = std::vector<RowStatus>(2);
  std::vector<CertifiedRow> rows;
  MatrixView hidden{values.data(), 2, 8, 8, DType::kF32, {}};
  int32_t k = 3;
  size_t workspace = 1 << 20;
};

TEST(CertifiedTopChecks, RefuseWhatDoesNotFit) {
  const std::vector<BadCase<TopCall>> cases = {
      {[](TopCall& c) { c.k = 0; }, "k", "0", "[1, 10]"},
      {[](TopCall& c) { c.k = 11; }, "k", "11", "[1, 10]"},
      {[](TopCall& c) { c.ids.pop_back(); }, "ids.size()", "5", "6"},
      {[](TopCall& c) { c.logits.pop_back(); }, "logits.size()", "5", "6"},
      {[](TopCall& c) { c.status.pop_back(); }, "status.size()", "1", "2"},
      {[](TopCall& c) { c.rows.resize(3); }, "rows.size()", "3", "2"},
      {[](TopCall& c) { c.bitmask.resize(3); }, "bitmask.size()", "3", "2"},
      {[](TopCall& c) { c.hidden.columns = 7; }, "hidden.dim", "7", "8"},
      {[](TopCall& c) { c.hidden.rows = -1; }, "hidden.rows", "-1", "[0, 2147483647]"},
      {[](TopCall& c) { c.hidden.rows = int64_t{1} << 62; }, "hidden.rows", "4611686018427387904",
       "[0, 2147483647]"},
      {[](TopCall& c) { c.dense.weight.rows = 9; }, "head.weight.rows", "9", "10"},
      {[](TopCall& c) { c.dense.weight.columns = 7; }, "head.weight.dim", "7", "8"},
      {[](TopCall& c) { c.dense.weight.dtype = DType::kBf16; }, "head.weight.dtype", "bfloat16",
       "float32", ErrorCode::kInvalidType},
      {[](TopCall& c) {
         c.bias.assign(10, 0.0f);
         c.bias[4] = -INFINITY;
         c.dense.bias = c.bias;
       },
       "head.bias[4]", "-inf", "a finite number"},
      {[](TopCall& c) {
         c.bias.resize(9);
         c.dense.bias = c.bias;
       },
       "head.bias.size()", "9", "10"},
  };
  ExpectErrors<TopCall>(cases, [](TopCall& call) {
    const MatrixView weight{call.values.data(), 10, 8, 8, DType::kF32, {}};
    const CertifiedHead head(call.dense, HeadPlanes::Build(weight, {}, {}));
    AlignedBytes memory(call.workspace);
    Execution execution{Backend::kRef};
    execution.workspace = memory.span();
    head.TopK({call.hidden, call.bitmask}, {call.k, call.ids, call.logits, call.status}, call.rows,
              execution);
  });
}

TEST(CertifiedTopChecks, PathsAndReasonsHaveNames) {
  EXPECT_EQ(Name(CertifiedPath::kDense), "dense");
  EXPECT_EQ(Name(DenseReason::kParameters), "parameters");
  ExpectError([] { Name(CertifiedPath{4}); }, "path", "4", "nothing, planes, allowed or dense");
  EXPECT_EQ(Name(DenseReason::kMass), "mass");
  ExpectError([] { Name(DenseReason{5}); }, "reason", "5",
              "none, hidden, survivors, parameters or mass");
}

TEST(CertifiedTopChecks, AnEmptyBatchIsAnswered) {
  const std::vector<float> values(80, 0.5f);
  const MatrixView weight{values.data(), 10, 8, 8, DType::kF32, {}};
  const CertifiedHead head({weight}, HeadPlanes::Build(weight, {}, {}));
  const MatrixView hidden{nullptr, 0, 8, 8, DType::kF32, {}};
  EXPECT_EQ(RunTopK(head, {hidden, {}}, 3, {}).stats.bytes_read, 0);
}

}  // namespace
}  // namespace sluice::test
