// Clusters searched by a GPU: the answers of the dense head, by the bounds and budgets of the
// processor's search.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/research/device_search.h"

namespace sluice::test {
namespace {

struct Kind {
  research::ClusterMetric metric;
  bool folds_bias;
};
constexpr Kind kKinds[] = {{research::ClusterMetric::kEuclidean, false},
                           {research::ClusterMetric::kEuclidean, true},
                           {research::ClusterMetric::kSpherical, false}};

using ClusterSearchCuda = DeviceSearchTest;

TEST_F(ClusterSearchCuda, BoundsAreTheProcessorsAndNoLogitIsAboveThem) {
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const auto& [metric, folds_bias] : kKinds) {
      const int64_t vocab = random_.Between(1, 300);
      const Rows rows = MakeHead(head_kind, vocab, random_.Between(1, 300), random_);
      const Batch weight(rows, DType::kF32);
      const std::vector<float> bias = MakeBias(vocab, random_);
      const DenseHead head = {Matrix(weight), bias};
      const research::HeadClusters clusters = research::HeadClusters::Build(
          head,
          {.metric = metric, .clusters = random_.Between(1, vocab), .folds_bias = folds_bias});
      const Batch hidden(States(rows), DType::kF32);
      DeviceSearch device(weight, bias, clusters);
      device.Ask(hidden, {});
      const std::vector<float> actual = device.Bounds();
      const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
      const research::ClusterSearch search(head, clusters);
      const research::ClusterView view = research::ClusterAccess::View(clusters);
      const auto count = static_cast<size_t>(clusters.clusters());
      for (size_t r = 0; r < logits.size(); ++r) {
        std::vector<double> expected(count);
        MatrixView state = Matrix(hidden);
        state.data = state.Row(static_cast<int64_t>(r));
        state.rows = 1;
        search.Bounds(state, expected);
        double squares = 0.0;
        for (int64_t j = 0; j < state.columns; ++j) {
          const auto h = static_cast<double>(semantics::Load(state.data, DType::kF32, j));
          squares += h * h;
        }
        const double norm = std::sqrt(squares);
        for (size_t c = 0; c < count; ++c) {
          const auto bound = static_cast<double>(actual[r * count + c]);
          const double norms = static_cast<double>(view.shapes[c].most_norm) * norm;
          const double near = 1e-6 * (std::abs(expected[c]) + norms) + 1e-30;
          EXPECT_TRUE(bound == expected[c] || bound > 3e38 || std::abs(bound - expected[c]) <= near)
              << bound << " " << expected[c];
          for (const int32_t token : view.Tokens(static_cast<int64_t>(c))) {
            EXPECT_FALSE(static_cast<double>(logits[r][static_cast<size_t>(token)]) > bound)
                << static_cast<int>(head_kind) << " " << Name(metric) << " row " << r;
          }
        }
      }
    }
  }
}

// One cluster, clusters of one row, and some; a row's start aligned or not.
TEST_F(ClusterSearchCuda, TopIsTheDenseHeadsWhateverTheHead) {
  for (const DType dtype : kAllDTypes) {
    for (const HeadKind head_kind : kAllHeadKinds) {
      if (head_kind == HeadKind::kOneHuge) continue;  // its logits overflow: below
      for (const auto& [metric, folds_bias] : kKinds) {
        const int64_t vocab = random_.Between(60, 500);
        const Rows rows =
            Representable(MakeHead(head_kind, vocab, random_.Between(1, 300), random_), dtype);
        const Batch weight(rows, dtype, random_.Below(5));
        const std::vector<float> bias = MakeBias(vocab, random_);
        const DenseHead head = {Matrix(weight), bias};
        const int64_t counts[] = {1, 20, vocab};
        const research::HeadClusters clusters = research::HeadClusters::Build(
            head,
            {.metric = metric, .clusters = counts[random_.Below(3)], .folds_bias = folds_bias});
        const Batch hidden(States(rows), kAllDTypes[random_.Below(3)]);
        const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
        DeviceSearch device(weight, bias, clusters, {},
                            random_.Coin() ? RowStartAt::kAligned : RowStartAt::kOneElementOn);
        for (const int32_t k : {1, 10, 50, static_cast<int32_t>(vocab)}) {
          const std::vector<Answer> answers = device.Ask(hidden, {.k = k});
          for (size_t r = 0; r < answers.size(); ++r) {
            ASSERT_TRUE(IsFirst(answers[r], logits[r], static_cast<size_t>(k)))
                << Name(dtype) << " " << static_cast<int>(head_kind) << " " << Name(metric)
                << " folds " << folds_bias << " k " << k << " row " << r;
          }
        }
      }
    }
  }
}

// More tokens and clusters than there is shared memory to sort in, more rows than are computed at
// once, and some of many that might be the first.
TEST_F(ClusterSearchCuda, TokensOfALongHeadComeInTheirOrderHoweverManyClustersItHas) {
  for (const HeadKind kind : {HeadKind::kTies, HeadKind::kNormal}) {
    const Rows rows = MakeHead(kind, 9001, 40, random_);
    const Batch weight(rows, DType::kBf16);
    const DenseHead head = {Matrix(weight), {}};
    const Batch hidden(Peaked(rows, 3, 1.0f), DType::kF32);
    const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
    const research::DeviceMeans means;
    for (const int64_t count : {70, 9001}) {
      const research::HeadClusters clusters =
          research::HeadClusters::Build(head, {.clusters = count, .rounds = 1, .means = &means});
      EXPECT_EQ(clusters.clusters() > 8192, count > 8192 && kind == HeadKind::kNormal);
      DeviceSearch device(weight, {}, clusters);
      for (const int32_t k : {10, 4096, 8192, 8193, 9001}) {
        const std::vector<Answer> answers = device.Ask(hidden, {.k = k});
        for (size_t r = 0; r < answers.size(); ++r) {
          EXPECT_TRUE(IsFirst(answers[r], logits[r], static_cast<size_t>(k))) << k << " row " << r;
        }
      }
    }
  }
}

TEST_F(ClusterSearchCuda, PlantedClustersSpareHalfOfTheRowsAndMoreWithTheSameTokens) {
  const Rows rows = InClusters(4000, 64, 40, 0.001, random_);
  const Batch weight(rows, DType::kBf16);
  const DenseHead head = {Matrix(weight), {}};
  constexpr int kStates = 20;
  for (const research::ClusterMetric metric :
       {research::ClusterMetric::kEuclidean, research::ClusterMetric::kSpherical}) {
    DeviceSearch device(weight, {},
                        research::HeadClusters::Build(head, {.metric = metric, .clusters = 80}));
    const Batch hidden(Peaked(rows, kStates, 1.0f), DType::kBf16);
    const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
    const std::vector<Answer> answers = device.Ask(hidden, {.k = 10});
    int64_t opened = 0;
    for (size_t r = 0; r < answers.size(); ++r) {
      EXPECT_TRUE(IsFirst(answers[r], logits[r], 10)) << Name(metric) << " row " << r;
      opened += answers[r].row.rows_opened;
    }
    EXPECT_LE(opened, kStates * 4000 / 2) << Name(metric);
    EXPECT_GE(opened, kStates * 10);
  }
}

// Biases of which a few lead, in clusters of their own.
TEST_F(ClusterSearchCuda, TokensThatLeadByTheirBiasOpenNoCluster) {
  const Rows rows = InClusters(4000, 64, 40, 0.001, random_);
  const Batch weight(rows, DType::kF32);
  std::vector<float> bias(4000, 0.0f);
  for (int rank = 1; rank <= 60; ++rank) {
    bias[random_.Below(bias.size())] = 12.0f / static_cast<float>(rank);
  }
  const DenseHead head = {Matrix(weight), bias};
  const Batch hidden(Peaked(rows, 8, 1.0f), DType::kF32);
  const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
  int64_t opened[2] = {};
  for (const int32_t leaders : {0, 3}) {
    DeviceSearch device(
        weight, bias,
        research::HeadClusters::Build(head, {.clusters = 80, .bias_leaders = leaders}));
    const std::vector<Answer> answers = device.Ask(hidden, {.k = 10});
    for (size_t r = 0; r < answers.size(); ++r) {
      EXPECT_TRUE(IsFirst(answers[r], logits[r], 10)) << leaders << " row " << r;
      opened[leaders == 0 ? 0 : 1] += answers[r].row.rows_opened;
    }
  }
  EXPECT_LT(opened[1], opened[0]);
}

TEST_F(ClusterSearchCuda, SoftmaxIsWithinEpsilonAndTopPIsThatOfAllTokens) {
  const Rows rows = InClusters(6000, 32, 40, 0.002, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  DeviceSearch device(weight, {}, research::HeadClusters::Build(head, {.clusters = 60}));
  research::ClusterSearch search(head, research::HeadClusters::Build(head, {.clusters = 60}));
  for (const float scale : {0.1f, 4.0f}) {
    const Batch hidden(Peaked(rows, 10, scale), DType::kF32);
    const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
    for (const double temperature : {0.7, 1.0}) {
      for (const double epsilon : {0.2, 0.05, 0.001}) {
        const std::vector<Answer> answers = device.Ask(
            hidden,
            {.certificate = Certificate::kSoftmax, .epsilon = epsilon, .temperature = temperature});
        for (size_t r = 0; r < answers.size(); ++r) {
          const float most = *std::max_element(logits[r].begin(), logits[r].end());
          auto mass_of = [&](const std::vector<float>& of) {
            double mass = 0.0;
            for (const float x : of) mass += std::exp(static_cast<double>(x - most) / temperature);
            return mass;
          };
          for (size_t i = 0; i < answers[r].ids.size(); ++i) {
            const auto id = static_cast<size_t>(answers[r].ids[i]);
            ASSERT_TRUE(SameBits(answers[r].logits[i], logits[r][id]));
          }
          const double variation = 1.0 - mass_of(answers[r].logits) / mass_of(logits[r]);
          EXPECT_LE(variation, answers[r].row.epsilon + 1e-12);
          EXPECT_LE(answers[r].row.epsilon, epsilon);
        }
      }
      for (const double p : {0.1, 0.9, 0.999}) {
        const research::ClusterQuestion question = {
            .certificate = Certificate::kTopP, .p = p, .temperature = temperature};
        const std::vector<Answer> answers = device.Ask(hidden, question);
        for (size_t r = 0; r < answers.size(); ++r) {
          MatrixView state = Matrix(hidden);
          state.data = state.Row(static_cast<int64_t>(r));
          state.rows = 1;
          const size_t count = search.Search(state, question).ids.size();
          EXPECT_TRUE(IsFirst(answers[r], logits[r], count)) << p << " " << scale << " row " << r;
        }
      }
    }
  }
}

// Equal logits of which the nucleus keeps some, and many that weigh next to nothing.
TEST_F(ClusterSearchCuda, ANucleusThatEndsAmongEqualsKeepsTheSmallestIds) {
  std::vector<float> bias(500, 0.0f);
  for (size_t v = 200; v < 500; ++v) bias[v] = -25.0f;
  const Batch weight(Rows(500, std::vector<float>(8, 0.0f)), DType::kF32);
  const DenseHead head = {Matrix(weight), bias};
  const Batch hidden({std::vector<float>(8, 1.0f)}, DType::kF32);
  DeviceSearch device(weight, bias, research::HeadClusters::Build(head, {.clusters = 9}));
  for (const int kept : {1, 77, 199}) {
    const double p = (kept - 0.5) / 200.0;
    const Answer answer = device.Ask(hidden, {.certificate = Certificate::kTopP, .p = p})[0];
    EXPECT_TRUE(IsFirst(answer, bias, static_cast<size_t>(kept))) << kept;
  }
  const Answer all = device.Ask(hidden, {.certificate = Certificate::kTopP, .p = 1.0 - 5e-12})[0];
  EXPECT_GT(all.ids.size(), 200u);
  EXPECT_TRUE(IsFirst(all, bias, all.ids.size()));
}

TEST_F(ClusterSearchCuda, EveryFallbackIsTakenForItsReason) {
  const Rows rows = InClusters(4000, 32, 200, 0.004, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const research::HeadClusters clusters = research::HeadClusters::Build(head, {.clusters = 300});
  const Batch hidden(Peaked(rows, 1, 4.0f), DType::kF32);
  const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
  auto ask = [&](double budget, const research::ClusterQuestion& question, bool relaxes = false) {
    DeviceSearch device(weight, {}, clusters,
                        {.rows = budget, .first_steps = 0, .relaxes = relaxes});
    const Answer answer = device.Ask(hidden, question)[0];
    EXPECT_EQ(answer.row.reason == research::ClusterReason::kNone,
              answer.row.path != research::ClusterPath::kDense);
    EXPECT_GT(answer.row.count, 0);
    if (question.certificate == Certificate::kTopK) {
      EXPECT_TRUE(IsFirst(answer, logits[0], static_cast<size_t>(question.k)));
    }
    return answer.row;
  };
  // Each budget with the path that it leads to: no shorter one for fewer rows.
  auto budgets = [&](const research::ClusterQuestion& question, bool relaxes) {
    int times[4] = {};
    int last = static_cast<int>(research::ClusterPath::kBudget);
    for (double budget = 4000.0; budget >= 1.0; budget *= 0.85) {
      const research::ClusterRow row = ask(budget, question, relaxes);
      const int path = static_cast<int>(row.path);
      ++times[path];
      EXPECT_GE(path, last) << budget;
      last = path;
      if (row.path == research::ClusterPath::kDense) {
        EXPECT_EQ(row.rows_opened, 4000);
        EXPECT_EQ(row.clusters_opened, clusters.clusters());
        EXPECT_EQ(row.reason, research::ClusterReason::kBudget);
      } else {
        // As the processor's search, by less than one cluster.
        EXPECT_LT(row.rows_opened, 2.0 * budget + 100.0);
      }
      if (question.certificate == Certificate::kSoftmax) {
        const bool is_relaxed = row.path == research::ClusterPath::kRelaxed;
        EXPECT_LE(row.epsilon, question.epsilon * (is_relaxed ? 2.0 : 1.0));
        EXPECT_EQ(row.epsilon > question.epsilon, is_relaxed);
      }
    }
    return std::vector<int>(times, times + 4);
  };
  const std::vector<int> top = budgets({.k = 50}, true);
  EXPECT_GT(top[0], 0);
  EXPECT_GT(top[1], 0);
  EXPECT_EQ(top[2], 0);
  EXPECT_GT(top[3], 0);
  int relaxed = 0, strict = 0;
  for (double epsilon = 0.2; epsilon > 1e-6; epsilon *= 0.5) {
    const research::ClusterQuestion softmax = {.certificate = Certificate::kSoftmax,
                                               .epsilon = epsilon};
    relaxed += budgets(softmax, true)[2];
    strict += budgets(softmax, false)[2];
  }
  EXPECT_GT(relaxed, 0);
  EXPECT_EQ(strict, 0);
}

// Else nothing here would notice bounds that are none.
TEST_F(ClusterSearchCuda, RadiiThatAreTooSmallAreSeen) {
  const Rows rows = MakeHead(HeadKind::kNormal, 2000, 24, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const research::HeadClusters clusters = research::HeadClusters::Build(head, {.clusters = 100});
  const Batch hidden(Peaked(rows, 64, 1.0f), DType::kF32);
  const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
  auto wrong = [&] {
    DeviceSearch device(weight, {}, clusters);
    const std::vector<Answer> answers = device.Ask(hidden, {.k = 10});
    size_t count = 0;
    for (size_t r = 0; r < answers.size(); ++r) {
      count += IsFirst(answers[r], logits[r], 10) ? 0 : 1;
    }
    return count;
  };
  EXPECT_EQ(wrong(), 0u);
  for (const research::ClusterShape& shape : research::ClusterAccess::View(clusters).shapes) {
    const_cast<research::ClusterShape&>(shape).radius *= 0.25f;
  }
  EXPECT_GT(wrong(), 0u);
}

}  // namespace
}  // namespace sluice::test
