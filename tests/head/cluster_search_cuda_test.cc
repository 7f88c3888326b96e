// Clusters searched by a GPU: the answers of the dense head, by the bounds and budgets of the
// processor's search.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "head/cluster_call.h"
#include "tests/head/device_head.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

using Certificate = ClusterCertificate;

struct Kind {
  ClusterMetric metric;
  bool folds_bias;
};
constexpr Kind kKinds[] = {{ClusterMetric::kEuclidean, false},
                           {ClusterMetric::kEuclidean, true},
                           {ClusterMetric::kSpherical, false}};

// Rows that really lie in clusters: `centers` directions and little beside them.
Rows InClusters(int64_t vocab, int64_t dim, int64_t centers, double noise, Random& random) {
  const Rows means = MakeHead(HeadKind::kNormal, centers, dim, random);
  Rows rows;
  for (int64_t v = 0; v < vocab; ++v) {
    rows.push_back(means[static_cast<size_t>(v % centers)]);
    for (float& x : rows.back()) x += static_cast<float>(noise * random.Normal());
  }
  return rows;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  cuda::ClusterRow row;
};

// A head in clusters in device memory.
class DeviceSearch {
 public:
  DeviceSearch(const Batch& weight, const std::vector<float>& bias, const HeadClusters& clusters,
               const ClusterBudget& budget = {}, RowStartAt start = RowStartAt::kAligned)
      : weight_(weight, start), bias_(bias), memory_(cuda::DeviceClusterBytes(clusters)) {
    call_.head = {weight_.view(), {bias_.data(), std::ssize(bias)}};
    call_.clusters = cuda::UploadClusters(clusters, memory_, nullptr);
    call_.budget = budget;
  }

  // For questions of so many sequences.
  void StartPaces(size_t rows) {
    paces_ = std::make_unique<OnDevice<ClusterPace>>(std::vector<ClusterPace>(rows));
    call_.paces = *paces_;
  }
  std::vector<ClusterPace> paces() const { return paces_->Get(); }

  void Prepare(const Batch& hidden) {
    hidden_ = std::make_unique<DeviceMatrix>(hidden);
    call_.hidden = hidden_->view();
    workspace_ = std::make_unique<OnDevice<std::byte>>(
        cuda::ClusterWorkspaceBytes(call_.clusters, call_.hidden.rows));
    call_.workspace = *workspace_;
  }

  std::vector<Answer> Ask(const Batch& hidden, const ClusterQuestion& question) {
    Prepare(hidden);
    const auto rows = static_cast<size_t>(call_.hidden.rows);
    const bool is_top = question.certificate == Certificate::kTopK;
    const auto width = static_cast<size_t>(is_top ? int64_t{question.k} : call_.head.weight.rows);
    const OnDevice<int32_t> ids(rows * width);
    const OnDevice<float> logits(rows * width);
    const OnDevice<cuda::ClusterRow> of_rows(rows);
    cuda::SearchClusters(call_, question, {ids, logits, of_rows}, nullptr);
    const std::vector<int32_t> all_ids = ids.Get();
    const std::vector<float> all_logits = logits.Get();
    const std::vector<cuda::ClusterRow> all_rows = of_rows.Get();
    std::vector<Answer> answers;
    for (size_t r = 0; r < rows; ++r) {
      const auto count = static_cast<ptrdiff_t>(all_rows[r].count);
      const auto first = static_cast<ptrdiff_t>(r * width);
      answers.push_back({{all_ids.begin() + first, all_ids.begin() + first + count},
                         {all_logits.begin() + first, all_logits.begin() + first + count},
                         all_rows[r]});
    }
    return answers;
  }

  // Behind an Ask.
  std::vector<float> Bounds() const {
    size_t bytes = 0;
    const cuda::ClusterMemory memory =
        cuda::LayOut(call_.clusters, call_.hidden.rows, workspace_->data(), &bytes);
    std::vector<float> bounds(static_cast<size_t>(call_.hidden.rows * call_.clusters.clusters));
    Require(cudaMemcpy(bounds.data(), memory.bounds, bounds.size() * sizeof(float),
                       cudaMemcpyDeviceToHost));
    return bounds;
  }

  const cuda::ClusterCall& call() const { return call_; }

 private:
  DeviceMatrix weight_;
  OnDevice<float> bias_;
  OnDevice<std::byte> memory_;
  std::unique_ptr<OnDevice<ClusterPace>> paces_;
  std::unique_ptr<DeviceMatrix> hidden_;
  std::unique_ptr<OnDevice<std::byte>> workspace_;
  cuda::ClusterCall call_;
};

// The tokens in the total order.
std::vector<int32_t> Sorted(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return semantics::Before({logits[static_cast<size_t>(a)], a},
                             {logits[static_cast<size_t>(b)], b});
  });
  return ids;
}

bool IsFirst(const Answer& answer, const std::vector<float>& logits, size_t count) {
  const std::vector<int32_t> ids = Sorted(logits);
  if (answer.ids.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (answer.ids[i] != ids[i]) return false;
    if (!SameBits(answer.logits[i], logits[static_cast<size_t>(ids[i])])) return false;
  }
  return true;
}

class ClusterSearchCuda : public DeviceTest {
 protected:
  Rows States(const Rows& rows) {
    Rows states;
    for (const HiddenKind kind : kAllHiddenKinds) states.push_back(MakeHidden(kind, rows, random_));
    return states;
  }
  Rows Peaked(const Rows& rows, int count, float scale) {
    Rows states;
    for (int i = 0; i < count; ++i) {
      states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random_));
      for (float& h : states.back()) h *= scale;
    }
    return states;
  }

  Random random_{91};
};

TEST_F(ClusterSearchCuda, BoundsAreTheProcessorsAndNoLogitIsAboveThem) {
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const auto& [metric, folds_bias] : kKinds) {
      const int64_t vocab = random_.Between(1, 300);
      const Rows rows = MakeHead(head_kind, vocab, random_.Between(1, 300), random_);
      const Batch weight(rows, DType::kF32);
      const std::vector<float> bias = MakeBias(vocab, random_);
      const DenseHead head = {Matrix(weight), bias};
      const HeadClusters clusters = HeadClusters::Build(
          head,
          {.metric = metric, .clusters = random_.Between(1, vocab), .folds_bias = folds_bias});
      const Batch hidden(States(rows), DType::kF32);
      DeviceSearch device(weight, bias, clusters);
      device.Ask(hidden, {});
      const std::vector<float> actual = device.Bounds();
      const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
      const ClusterSearch search(head, clusters);
      const ClusterView view = ClusterAccess::View(clusters);
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
        const HeadClusters clusters = HeadClusters::Build(
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
    const cuda::DeviceMeans means;
    for (const int64_t count : {70, 9001}) {
      const HeadClusters clusters =
          HeadClusters::Build(head, {.clusters = count, .rounds = 1, .means = &means});
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
  for (const ClusterMetric metric : {ClusterMetric::kEuclidean, ClusterMetric::kSpherical}) {
    DeviceSearch device(weight, {}, HeadClusters::Build(head, {.metric = metric, .clusters = 80}));
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
    DeviceSearch device(weight, bias,
                        HeadClusters::Build(head, {.clusters = 80, .bias_leaders = leaders}));
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
  DeviceSearch device(weight, {}, HeadClusters::Build(head, {.clusters = 60}));
  ClusterSearch search(head, HeadClusters::Build(head, {.clusters = 60}));
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
        const ClusterQuestion question = {
            .certificate = Certificate::kTopP, .p = p, .temperature = temperature};
        const std::vector<Answer> answers = device.Ask(hidden, question);
        for (size_t r = 0; r < answers.size(); ++r) {
          MatrixView state = Matrix(hidden);
          state.data = state.Row(static_cast<int64_t>(r));
          state.rows = 1;
          const size_t count = search.Ask(state, question).ids.size();
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
  DeviceSearch device(weight, bias, HeadClusters::Build(head, {.clusters = 9}));
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
  const HeadClusters clusters = HeadClusters::Build(head, {.clusters = 300});
  const Batch hidden(Peaked(rows, 1, 4.0f), DType::kF32);
  const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
  auto ask = [&](double budget, const ClusterQuestion& question, bool relaxes = false) {
    DeviceSearch device(weight, {}, clusters,
                        {.rows = budget, .first_steps = 0, .relaxes = relaxes});
    const Answer answer = device.Ask(hidden, question)[0];
    EXPECT_EQ(answer.row.reason == ClusterReason::kNone, answer.row.path != ClusterPath::kDense);
    EXPECT_GT(answer.row.count, 0);
    if (question.certificate == Certificate::kTopK) {
      EXPECT_TRUE(IsFirst(answer, logits[0], static_cast<size_t>(question.k)));
    }
    return answer.row;
  };
  // Each budget with the path that it leads to: no shorter one for fewer rows.
  auto budgets = [&](const ClusterQuestion& question, bool relaxes) {
    int times[4] = {};
    int last = static_cast<int>(ClusterPath::kBudget);
    for (double budget = 4000.0; budget >= 1.0; budget *= 0.85) {
      const cuda::ClusterRow row = ask(budget, question, relaxes);
      const int path = static_cast<int>(row.path);
      ++times[path];
      EXPECT_GE(path, last) << budget;
      last = path;
      if (row.path == ClusterPath::kDense) {
        EXPECT_EQ(row.rows_opened, 4000);
        EXPECT_EQ(row.clusters_opened, clusters.clusters());
        EXPECT_EQ(row.reason, ClusterReason::kBudget);
      } else {
        // As the processor's search, by less than one cluster.
        EXPECT_LT(row.rows_opened, 2.0 * budget + 100.0);
      }
      if (question.certificate == Certificate::kSoftmax) {
        const bool is_relaxed = row.path == ClusterPath::kRelaxed;
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
    const ClusterQuestion softmax = {.certificate = Certificate::kSoftmax, .epsilon = epsilon};
    relaxed += budgets(softmax, true)[2];
    strict += budgets(softmax, false)[2];
  }
  EXPECT_GT(relaxed, 0);
  EXPECT_EQ(strict, 0);
}

TEST_F(ClusterSearchCuda, WhatIsNotFiniteHasNoAnswerAndTouchesNoOtherRow) {
  const Rows rows = MakeHead(HeadKind::kNormal, 300, 20, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  Rows states = Peaked(rows, 5, 1.0f);
  states[1][19] = NAN;
  states[2][0] = -INFINITY;
  states[3].assign(20, 3e38f);
  const Batch hidden(states, DType::kF32);
  const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
  DeviceSearch device(weight, {}, HeadClusters::Build(head, {.clusters = 30}));
  for (const Certificate certificate :
       {Certificate::kTopK, Certificate::kSoftmax, Certificate::kTopP}) {
    const std::vector<Answer> answers = device.Ask(hidden, {.certificate = certificate, .k = 7});
    for (const size_t r : {1, 2}) {
      EXPECT_EQ(answers[r].row.count, 0);
      EXPECT_EQ(answers[r].row.path, ClusterPath::kDense);
      EXPECT_EQ(answers[r].row.reason, ClusterReason::kHidden);
    }
    for (const size_t r : {0, 4}) {
      EXPECT_EQ(answers[r].row.reason == ClusterReason::kNone,
                answers[r].row.path != ClusterPath::kDense);
      EXPECT_GT(answers[r].row.count, 0);
      if (certificate == Certificate::kTopK) EXPECT_TRUE(IsFirst(answers[r], logits[r], 7));
    }
  }
  // One weight of 1e30.
  const Rows huge = MakeHead(HeadKind::kOneHuge, 100, 8, random_);
  const Batch huge_weight(huge, DType::kF32);
  const DenseHead huge_head = {Matrix(huge_weight), {}};
  DeviceSearch overflow(huge_weight, {}, HeadClusters::Build(huge_head, {.clusters = 5}));
  const Batch large({std::vector<float>(8, 1e15f)}, DType::kF32);
  const Answer answer = overflow.Ask(large, {.k = 50})[0];
  EXPECT_EQ(answer.row.count, 0);
  EXPECT_EQ(answer.row.path, ClusterPath::kDense);
  EXPECT_EQ(answer.row.reason, ClusterReason::kLogit);
}

TEST_F(ClusterSearchCuda, TheBudgetOfASequenceFollowsItsAnswersAsTheProcessorsDoes) {
  const Rows rows = MakeHead(HeadKind::kNormal, 500, 32, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const HeadClusters clusters = HeadClusters::Build(head, {.clusters = 50});
  const ClusterBudget budget = {.rows = 1, .first_rows = 500, .first_steps = 2, .gain = 0.1};
  const Rows states = {MakeHidden(HiddenKind::kNormal, rows, random_), std::vector<float>(32, NAN)};
  const Batch hidden(states, DType::kF32);
  const Batch first({states[0]}, DType::kF32);
  DeviceSearch device(weight, {}, clusters, budget);
  device.StartPaces(2);
  ClusterSearch search(head, clusters, budget);
  for (int step = 0; step < 120; ++step) {
    const std::vector<Answer> answers = device.Ask(hidden, {.k = 5});
    const ClusterAnswer expected = search.Ask(Matrix(first), {.k = 5});
    ASSERT_EQ(answers[0].row.path, expected.path) << step;
    if (step < 8) EXPECT_EQ(answers[0].row.path == ClusterPath::kDense, step >= 2) << step;
    EXPECT_EQ(device.paces()[0].rows, search.budget_rows()) << step;
    EXPECT_EQ(device.paces()[1].steps, 0);  // it was no question
  }
  EXPECT_GT(search.budget_rows(), 100.0);
}

TEST_F(ClusterSearchCuda, AGraphAnswersTheStatesThatAreThereWhenItIsReplayed) {
  const Rows rows = InClusters(3000, 48, 40, 0.003, random_);
  const Batch weight(rows, DType::kBf16);
  const DenseHead head = {Matrix(weight), {}};
  DeviceSearch device(weight, {}, HeadClusters::Build(head, {.clusters = 80}));
  constexpr size_t kRows = 3;
  constexpr int32_t kTop = 20;
  device.Prepare(Batch(Peaked(rows, kRows, 1.0f), DType::kF32, 0));
  const OnDevice<int32_t> ids(kRows * kTop);
  const OnDevice<float> logits(kRows * kTop);
  const OnDevice<cuda::ClusterRow> of_rows(kRows);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Require(cudaStreamCreate(&stream));
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  cuda::SearchClusters(device.call(), {.k = kTop}, {ids, logits, of_rows}, stream);
  Require(cudaStreamEndCapture(stream, &graph));
  Require(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 5; ++replay) {
    const Rows states = Peaked(rows, kRows, replay == 3 ? 0.01f : 1.0f);
    std::vector<float> flat;
    for (const auto& state : states) flat.insert(flat.end(), state.begin(), state.end());
    Require(cudaMemcpy(const_cast<void*>(device.call().hidden.data), flat.data(),
                       flat.size() * sizeof(float), cudaMemcpyHostToDevice));
    Require(cudaGraphLaunch(executable, stream));
    Require(cudaStreamSynchronize(stream));
    const Rows expected = DenseLogits(head, {Matrix(Batch(states, DType::kF32)), {}});
    const std::vector<int32_t> all_ids = ids.Get();
    const std::vector<float> all_logits = logits.Get();
    for (size_t r = 0; r < kRows; ++r) {
      const auto at = static_cast<ptrdiff_t>(r * kTop);
      const Answer answer = {{all_ids.begin() + at, all_ids.begin() + at + kTop},
                             {all_logits.begin() + at, all_logits.begin() + at + kTop},
                             {}};
      EXPECT_TRUE(IsFirst(answer, expected[r], kTop)) << replay << " row " << r;
    }
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

// Else nothing here would notice bounds that are none.
TEST_F(ClusterSearchCuda, RadiiThatAreTooSmallAreSeen) {
  const Rows rows = MakeHead(HeadKind::kNormal, 2000, 24, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const HeadClusters clusters = HeadClusters::Build(head, {.clusters = 100});
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
  for (const ClusterShape& shape : ClusterAccess::View(clusters).shapes) {
    const_cast<ClusterShape&>(shape).radius *= 0.25f;
  }
  EXPECT_GT(wrong(), 0u);
}

// What follows needs no device: nothing is launched, so the pointers are never followed.

struct Call {
  template <typename T>
  static T* Some() {
    return reinterpret_cast<T*>(256);
  }
  static MatrixView Matrix(int64_t rows, DType dtype) {
    return {Some<float>(), rows, 16, 16, dtype, {DeviceKind::kCuda, 0}};
  }

  cuda::ClusterCall call = {
      .head = {Matrix(100, DType::kBf16), {}},
      .clusters = {ClusterMetric::kEuclidean, false, 100, 16, 7, 7, {Some<std::byte>(), 1 << 20}},
      .hidden = Matrix(2, DType::kF32),
      .workspace = {Some<std::byte>(), 1 << 20}};
  ClusterQuestion question = {.k = 5};
  cuda::ClusterPlaces places = {
      {Some<int32_t>(), 10}, {Some<float>(), 10}, {Some<cuda::ClusterRow>(), 2}};
};

TEST(ClusterSearchCudaArguments, AreNamedWhereTheyAreWrong) {
  const std::vector<BadCase<Call>> cases = {
      {[](Call& c) { c.call.clusters.vocab = 99; }, "clusters.vocab", "99", "100"},
      {[](Call& c) { c.call.clusters.dim = 17; }, "clusters.dim", "17", "16"},
      {[](Call& c) { c.call.clusters.clusters = 0; }, "clusters.clusters", "0", "[1, 100]"},
      {[](Call& c) { c.call.clusters.centroids = 8; }, "clusters.centroids", "8", "[1, 7]"},
      {[](Call& c) { c.call.clusters.memory.size = 100; }, "clusters.memory.size", "100",
       "[1232, 9223372036854775807]"},
      {[](Call& c) { c.call.clusters.memory.data = nullptr; }, "clusters.memory.data", "null",
       "a pointer to device memory, aligned to 256"},
      {[](Call& c) { c.call.hidden.columns = 15; }, "hidden.dim", "15", "16"},
      {[](Call& c) { c.call.hidden.rows = 1025; }, "hidden.rows", "1025", "[0, 1024]"},
      {[](Call& c) { c.call.workspace.data += 16; }, "workspace.data", "an address",
       "a pointer to device memory, aligned to 256"},
      {[](Call& c) { c.call.paces = {Call::Some<ClusterPace>(), 3}; }, "paces.size()", "3", "2"},
      {[](Call& c) { c.question.k = 0; }, "question.k", "0", "[1, 100]"},
      {[](Call& c) { c.question.k = 101; }, "question.k", "101", "[1, 100]"},
      {[](Call& c) { c.question = {.certificate = Certificate::kSoftmax, .epsilon = 1.0}; },
       "question.epsilon", "1", "between 0 and 1"},
      {[](Call& c) { c.question = {.certificate = Certificate::kTopP, .p = 0.0}; }, "question.p",
       "0", "between 0 and 1"},
      {[](Call& c) { c.question = {.certificate = Certificate::kTopP, .temperature = 0.0}; },
       "question.temperature", "0", "above 0, finite"},
      {[](Call& c) { c.places.ids.size = 9; }, "ids.size()", "9", "10"},
      {[](Call& c) { c.question = {.certificate = Certificate::kTopP}; }, "ids.size()", "10",
       "200"},
      {[](Call& c) { c.places.logits.size = 11; }, "logits.size()", "11", "10"},
      {[](Call& c) { c.places.rows.size = 1; }, "rows.size()", "1", "2"},
  };
  for (const auto& bad : cases) {
    Call call;
    EXPECT_NO_THROW(cuda::ArgumentOf(call.call, call.question, call.places));
    bad.spoil(call);
    ExpectError([&] { cuda::ArgumentOf(call.call, call.question, call.places); }, bad.parameter,
                bad.value, bad.allowed, bad.code);
  }
  Call call;
  const auto bytes =
      static_cast<int64_t>(cuda::ClusterWorkspaceBytes(call.call.clusters, call.call.hidden.rows));
  call.call.workspace.size = bytes;
  EXPECT_NO_THROW(cuda::ArgumentOf(call.call, call.question, call.places));
  call.call.workspace.size = bytes - 1;
  ExpectError([&] { cuda::ArgumentOf(call.call, call.question, call.places); }, "workspace.size",
              ToText(bytes - 1), RangeText(bytes, INT64_MAX));
  ExpectError([&] { cuda::ClusterWorkspaceBytes(call.call.clusters, 1025); }, "rows", "1025",
              "[0, 1024]");
}

TEST(ClusterSearchCudaArguments, PartsOfTheWorkspaceLieApart) {
  const cuda::DeviceClusters clusters = Call().call.clusters;
  size_t bytes = 0;
  auto* const first = Call::Some<std::byte>();
  for (const int64_t rows : {1, 3}) {
    const cuda::ClusterMemory memory = cuda::LayOut(clusters, rows, first, &bytes);
    const std::byte* const ends[] = {
        reinterpret_cast<const std::byte*>(memory.courses + rows),
        reinterpret_cast<const std::byte*>(memory.states + rows * memory.state_stride),
        reinterpret_cast<const std::byte*>(memory.bounds + rows * 7),
        reinterpret_cast<const std::byte*>(memory.list + rows * 7),
        reinterpret_cast<const std::byte*>(memory.sorted + rows * 7),
        reinterpret_cast<const std::byte*>(memory.starts + rows * 8),
        reinterpret_cast<const std::byte*>(memory.ids + rows * 100),
        reinterpret_cast<const std::byte*>(memory.logits + rows * 100),
        reinterpret_cast<const std::byte*>(memory.logit_of + rows * 100),
        reinterpret_cast<const std::byte*>(memory.room + rows * memory.room_stride)};
    const void* const starts[] = {memory.states, memory.bounds, memory.list,   memory.sorted,
                                  memory.starts, memory.ids,    memory.logits, memory.logit_of,
                                  memory.room,   first + bytes};
    EXPECT_GE(memory.room_stride, 100);
    for (size_t i = 0; i < std::size(ends); ++i) {
      EXPECT_LE(ends[i], static_cast<const std::byte*>(starts[i])) << i;
    }
    EXPECT_EQ(bytes, cuda::ClusterWorkspaceBytes(clusters, rows));
  }
}

}  // namespace
}  // namespace sluice::test
