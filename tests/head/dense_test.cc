// The dense head: one defined order of additions, whatever the batch.
#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "sluice/head.hpp"
#include "tests/support/backends.h"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/guarded_row.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

constexpr int64_t kDims[] = {1, 2, 127, 128, 129, 255, 256, 1000};

class ProjectDense : public BackendTest {};

MatrixView Matrix(const Batch& batch) {
  const LogitsView view = batch.view();
  return {view.data, view.rows, view.vocab, view.stride, view.dtype, view.device};
}

std::vector<std::vector<float>> RandomRows(int64_t rows, int64_t dim, Random& random) {
  std::vector<std::vector<float>> values(static_cast<size_t>(rows));
  for (auto& row : values) {
    for (int64_t i = 0; i < dim; ++i) row.push_back(static_cast<float>(random.Normal()));
  }
  return values;
}

std::vector<std::vector<float>> Projected(const DenseHead& head, const MatrixView& hidden,
                                          std::span<const int32_t> query_start_loc,
                                          const Execution& execution) {
  const int64_t rows =
      query_start_loc.empty() ? hidden.rows : static_cast<int64_t>(query_start_loc.size()) - 1;
  const int64_t vocab = head.weight.rows;
  Batch logits(
      std::vector(static_cast<size_t>(rows), std::vector<float>(static_cast<size_t>(vocab), 7.0f)));
  const std::vector<std::byte> before(logits.bytes().begin(), logits.bytes().end());
  MutableLogitsView view = logits.mutable_view();
  if (rows == 0) view.vocab = view.stride = vocab;  // a Batch without rows has no width
  Project(head, hidden, query_start_loc, view, execution);
  std::vector<std::vector<float>> values(static_cast<size_t>(rows));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t v = 0; v < vocab; ++v) values[static_cast<size_t>(r)].push_back(logits.Get(r, v));
    for (int64_t v = 0; v < vocab; ++v) logits.Set(r, v, 7.0f);
  }
  // With the logits put back nothing is left: the padding was not written.
  EXPECT_TRUE(SameSequence(logits.bytes(), before));
  return values;
}

// The definition with no loop shared with the library: lanes first, then the tree, level by level.
float LiteralDot(const Batch& a, int64_t row_a, const Batch& b, int64_t row_b) {
  std::vector<float> lanes;
  for (int64_t lane = 0; lane < 128; ++lane) {
    float sum = 0.0f;
    for (int64_t i = lane; i < a.view().vocab; i += 128) {
      sum = std::fma(a.Get(row_a, i), b.Get(row_b, i), sum);
    }
    lanes.push_back(sum);
  }
  while (lanes.size() > 1) {
    const size_t half = lanes.size() / 2;
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
    lanes.resize(half);
  }
  return lanes[0];
}

TEST_P(ProjectDense, EqualsTheLiteralLanes) {
  Random random(1);
  for (const int64_t dim : kDims) {
    for (const DType hidden_dtype : kAllDTypes) {
      const Batch weight(RandomRows(17, dim, random), dtype());
      const Batch hidden(RandomRows(3, dim, random), hidden_dtype, 1);
      const auto logits = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
      for (int64_t r = 0; r < 3; ++r) {
        for (int64_t v = 0; v < 17; ++v) {
          EXPECT_TRUE(SameBits(logits[static_cast<size_t>(r)][static_cast<size_t>(v)],
                               LiteralDot(weight, v, hidden, r)))
              << dim;
        }
      }
    }
  }
}

TEST_P(ProjectDense, AddsTheBiasLast) {
  Random random(2);
  const Batch weight(RandomRows(9, 300, random), dtype());
  const Batch hidden(RandomRows(2, 300, random), dtype());
  const std::vector<float> bias = {0.0f, -0.0f, 1e-8f, 0.1f, -3.0f, 1e8f, -1e30f, 0.5f, 2.0f};
  const auto plain = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
  const auto biased = Projected({Matrix(weight), bias}, Matrix(hidden), {}, {backend()});
  for (size_t r = 0; r < 2; ++r) {
    for (size_t v = 0; v < bias.size(); ++v) {
      EXPECT_TRUE(SameBits(biased[r][v], plain[r][v] + bias[v]));
    }
  }
}

TEST_P(ProjectDense, GivesARowTheSameBitsInAnyBatchAndToAnySubsetOfTheVocabulary) {
  Random random(3);
  const auto weights = RandomRows(40, 333, random);
  const auto states = RandomRows(11, 333, random);
  const Batch weight(weights, dtype());
  const Batch hidden(states, DType::kF32);
  const auto all = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
  for (size_t r = 0; r < states.size(); ++r) {
    const Batch alone({states[r]}, DType::kF32, 0);
    EXPECT_TRUE(
        SameSequence(Projected({Matrix(weight)}, Matrix(alone), {}, {backend()})[0], all[r]));
  }
  // A candidate list, as a certified head would rescore it.
  const std::vector<size_t> some = {39, 0, 17, 5};
  std::vector<std::vector<float>> gathered;
  for (const size_t v : some) gathered.push_back(weights[v]);
  const Batch few(gathered, dtype(), 0);
  const auto logits = Projected({Matrix(few)}, Matrix(hidden), {}, {backend()});
  for (size_t r = 0; r < states.size(); ++r) {
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_TRUE(SameBits(logits[r][i], all[r][some[i]]));
    }
  }
}

// Tiles of every height, with rows that are not finite among them.
TEST_P(ProjectDense, GivesARowTheSameBitsInBatchesOfEverySize) {
  Random random(13);
  const float inf = std::numeric_limits<float>::infinity();
  for (const int64_t dim : {1, 15, 63, 64, 65, 130, 200, 257, 320}) {
    const Batch weight(RandomRows(35, dim, random), dtype());
    auto states = RandomRows(31, dim, random);
    for (const auto& [row, value] : {std::pair{size_t{2}, std::nanf("")}, {7, inf}, {8, -0.0f}}) {
      states[row][static_cast<size_t>(dim) / 2] = value;
    }
    std::vector<std::vector<float>> alone;
    for (const auto& state : states) {
      const Batch one({state}, DType::kF32, 0);
      alone.push_back(Projected({Matrix(weight)}, Matrix(one), {}, {backend()})[0]);
    }
    for (const size_t rows : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 25, 31}) {
      const Batch hidden(std::vector(states.begin(), states.begin() + static_cast<int64_t>(rows)),
                         DType::kF32);
      const auto all = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
      for (size_t r = 0; r < rows; ++r) {
        for (size_t v = 0; v < alone[r].size(); ++v) {
          // Which NaN is not defined.
          if (std::isnan(alone[r][v])) {
            EXPECT_TRUE(std::isnan(all[r][v]));
          } else {
            EXPECT_TRUE(SameBits(all[r][v], alone[r][v])) << dim << ", " << rows << " rows";
          }
        }
      }
    }
  }
}

TEST_P(ProjectDense, GathersTheLastPositionOfEachRequest) {
  Random random(4);
  const Batch weight(RandomRows(21, 130, random), dtype());
  const Batch hidden(RandomRows(12, 130, random), dtype());
  const std::vector<int32_t> query_start_loc = {0, 5, 6, 11, 12};
  const auto all = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
  const auto last = Projected({Matrix(weight)}, Matrix(hidden), query_start_loc, {backend()});
  ASSERT_EQ(last.size(), 4u);
  const size_t positions[] = {4, 5, 10, 11};
  for (size_t r = 0; r < 4; ++r) EXPECT_TRUE(SameSequence(last[r], all[positions[r]]));

  const std::vector<int32_t> none = {0};
  EXPECT_TRUE(Projected({Matrix(weight)}, Matrix(hidden), none, {backend()}).empty());
}

TEST_P(ProjectDense, KeepsInfinitiesAndNansAndSubnormals) {
  const float inf = std::numeric_limits<float>::infinity();
  const float small = 0x1p-14f;  // of fp16's normal range; the product is subnormal in fp16 only
  const Batch weight({{1.0f, 0.0f}, {0.0f, inf}, {small, 0.0f}}, dtype());
  const Batch hidden({{small, 1.0f}, {0x1p-130f, 0.0f}}, DType::kF32);
  const auto logits = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
  EXPECT_EQ(logits[0], (std::vector<float>{small, inf, 0x1p-28f}));
  EXPECT_EQ(logits[1][0], 0x1p-130f);
  EXPECT_TRUE(std::isnan(logits[1][1]));  // 0 * inf
  EXPECT_EQ(logits[1][2], 0x1p-144f);
}

TEST_P(ProjectDense, RunsOnAnyParallelFor) {
  Random random(5);
  const Batch weight(RandomRows(30, 64, random), dtype());
  const Batch hidden(RandomRows(20, 64, random), dtype());
  auto backwards = [](void*, int64_t count, ParallelFor::Task task, void* state) {
    for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
  };
  EXPECT_EQ(Projected({Matrix(weight)}, Matrix(hidden), {}, {backend(), {3, nullptr, backwards}}),
            Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()}));
}

// Batches and vocabularies around the tiles and blocks that a backend may work in.
TEST_P(ProjectDense, EqualsTheDefinitionAtEveryEdgeOfABatch) {
  Random random(6);
  for (const int64_t vocab : {1, 2, 3, 4, 5, 31, 32, 33, 67}) {
    for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 24, 25, 26, 49}) {
      const int64_t dim = random.Between(1, 300);
      const Batch weight(RandomRows(vocab, dim, random), dtype(), random.Below(5));
      const Batch hidden(RandomRows(rows, dim, random), kAllDTypes[random.Below(3)],
                         random.Below(5));
      const auto actual = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
      const auto expected = Projected({Matrix(weight)}, Matrix(hidden), {}, {Backend::kRef});
      for (size_t r = 0; r < actual.size(); ++r) {
        ASSERT_TRUE(SameSequence(actual[r], expected[r])) << vocab << " " << rows << " " << dim;
      }
    }
  }
}

// Every product is a tiny negative number, so every lane is -0, and their sum is unless a lane that
// has no element left was given one more addition.
TEST_P(ProjectDense, LanesBehindTheLastElementAreLeftAlone) {
  for (const int64_t dim : {128, 129, 140, 200, 255, 257}) {
    const std::vector<float> small(static_cast<size_t>(dim), 0x1p-24f);
    const std::vector<float> smaller(static_cast<size_t>(dim), -0x1p-140f);
    const Batch weight({small, small, small}, dtype());
    for (const size_t rows : {1u, 2u, 7u}) {
      const Batch hidden(std::vector(rows, smaller), DType::kF32);
      for (const auto& row : Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()})) {
        EXPECT_TRUE(SameSequence(row, std::vector<float>(3, -0.0f))) << dim;
      }
    }
  }
}

TEST_P(ProjectDense, ReadsNothingBesideTheRows) {
  Random random(7);
  for (const int64_t dim : kDims) {
    for (const int64_t rows : {1, 2}) {  // a guarded row of twice the width is two rows
      for (const GuardSide side : {GuardSide::kFront, GuardSide::kBack}) {
        const GuardedRow weight(RandomRows(1, rows * dim, random)[0], dtype(), side);
        const GuardedRow hidden(RandomRows(1, rows * dim, random)[0], dtype(), side);
        std::vector<float> logits(static_cast<size_t>(rows * rows));
        Project({{weight.view().data, rows, dim, dim, dtype(), {}}},
                {hidden.view().data, rows, dim, dim, dtype(), {}}, {},
                {logits.data(), rows, rows, rows, DType::kF32, {}}, {backend()});
      }
    }
  }
}

// A caller may have set flush-to-zero, or its workers another rounding.
TEST_P(ProjectDense, IsTheSameInAnyRoundingModeOfTheCaller) {
  Random random(8);
  const Batch weight(RandomRows(9, 300, random), dtype());
  const Batch hidden(RandomRows(7, 300, random), dtype());
  const auto expected = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(rounding);
    const auto actual = Projected({Matrix(weight)}, Matrix(hidden), {}, {backend()});
    const int left = std::fegetround();
    std::fesetround(FE_TONEAREST);
    EXPECT_EQ(left, rounding);
    EXPECT_EQ(actual, expected);
  }
}

SLUICE_FOR_EACH_BACKEND(ProjectDense);

}  // namespace
}  // namespace sluice::test
