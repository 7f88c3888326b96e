// The head in clusters: its bounds, and answers that are the dense head's.
#include <gtest/gtest.h>

#include <numeric>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "research/clusters/cluster_file.h"
#include "tests/head/certified.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

// Rows that really lie in clusters: `centers` directions and little beside them.
Rows PlantedHead(int64_t vocab, int64_t dim, int64_t centers, double noise, Random& random) {
  Rows means = MakeHead(HeadKind::kNormal, centers, dim, random);
  Rows rows;
  for (int64_t v = 0; v < vocab; ++v) {
    rows.push_back(means[static_cast<size_t>(v % centers)]);
    for (float& x : rows.back()) x += static_cast<float>(noise * random.Normal());
  }
  return rows;
}

class Clusters : public ::testing::Test {
 protected:
  Clusters() : random_(31) {}

  std::vector<float> DenseOf(const DenseHead& head, const Batch& hidden) {
    return DenseLogits(head, {Matrix(hidden), {}})[0];
  }
  // The tokens in the total order.
  static std::vector<int32_t> Sorted(const std::vector<float>& logits) {
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return semantics::Before({logits[static_cast<size_t>(a)], a},
                               {logits[static_cast<size_t>(b)], b});
    });
    return ids;
  }
  static void ExpectFirst(const research::ClusterAnswer& answer, const std::vector<float>& logits,
                          size_t count, const std::string& what) {
    const std::vector<int32_t> ids = Sorted(logits);
    ASSERT_EQ(answer.ids.size(), count) << what;
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(answer.ids[i], ids[i]) << what << " at " << i;
      ASSERT_EQ(answer.logits[i], logits[static_cast<size_t>(ids[i])]) << what << " at " << i;
    }
  }
  // The largest logit of a cluster over its bound.
  static int64_t Violations(const research::HeadClusters& clusters,
                            const std::vector<double>& bounds, const std::vector<float>& logits) {
    const research::ClusterView view = research::ClusterAccess::View(clusters);
    int64_t wrong = 0;
    for (size_t c = 0; c < bounds.size(); ++c) {
      for (const int32_t token : view.Tokens(static_cast<int64_t>(c))) {
        wrong += static_cast<double>(logits[static_cast<size_t>(token)]) > bounds[c] ? 1 : 0;
      }
    }
    return wrong;
  }

  // Within the rounding of a sum of fp32, of rows or of their directions.
  static void ExpectMeanOf(std::span<const int32_t> tokens, const Rows& rows,
                           research::ClusterMetric metric, std::span<const float> mean) {
    const bool is_spherical = metric == research::ClusterMetric::kSpherical;
    std::vector<double> sums(mean.size());
    for (const int32_t token : tokens) {
      const std::vector<float>& row = rows[static_cast<size_t>(token)];
      double norm = 0.0;
      for (const float w : row) norm += static_cast<double>(w) * static_cast<double>(w);
      const double scale = is_spherical ? 1.0 / std::sqrt(norm) : 1.0;
      for (size_t j = 0; j < sums.size(); ++j) sums[j] += scale * static_cast<double>(row[j]);
    }
    double divisor = static_cast<double>(tokens.size());
    if (is_spherical) {
      divisor = std::sqrt(std::inner_product(sums.begin(), sums.end(), sums.begin(), 0.0));
    }
    for (size_t j = 0; j < sums.size(); ++j) {
      ASSERT_NEAR(static_cast<double>(mean[j]), sums[j] / divisor, 1e-6)
          << Name(metric) << " column " << j;
    }
  }

  Random random_;
};

struct Kind {
  research::ClusterMetric metric;
  bool folds_bias;
};
constexpr Kind kKinds[] = {{research::ClusterMetric::kEuclidean, false},
                           {research::ClusterMetric::kEuclidean, true},
                           {research::ClusterMetric::kSpherical, false}};

TEST_F(Clusters, BoundsHoldOverAllRowsOfEveryKindOfHeadAndState) {
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const auto& [metric, folds_bias] : kKinds) {
      const int64_t vocab = random_.Between(1, 300);
      const int64_t dim = random_.Between(1, 200);
      const Rows rows = MakeHead(head_kind, vocab, dim, random_);
      const Batch weight(rows, DType::kF32);
      const std::vector<float> bias = MakeBias(vocab, random_);
      const DenseHead head = {Matrix(weight), bias};
      const research::HeadClusters clusters = research::HeadClusters::Build(
          head,
          {.metric = metric, .clusters = random_.Between(1, vocab), .folds_bias = folds_bias});
      const research::ClusterSearch search(head, clusters);
      for (const HiddenKind kind : kAllHiddenKinds) {
        const Batch hidden({MakeHidden(kind, rows, random_)}, DType::kF32);
        std::vector<double> bounds(static_cast<size_t>(clusters.clusters()));
        search.Bounds(Matrix(hidden), bounds);
        EXPECT_EQ(Violations(clusters, bounds, DenseOf(head, hidden)), 0)
            << static_cast<int>(head_kind) << " " << Name(metric) << " " << folds_bias;
      }
    }
  }
}

// A hidden state along the rest of the row that lies farthest out reaches the bound.
TEST_F(Clusters, ARadiusATenthSmallerIsNoBound) {
  const Rows rows = MakeHead(HeadKind::kNormal, 60, 40, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const research::HeadClusters clusters = research::HeadClusters::Build(head, {.clusters = 4});
  const research::ClusterView view = research::ClusterAccess::View(clusters);
  double least_slack = INFINITY;
  for (int64_t c = 0; c < clusters.clusters(); ++c) {
    const auto radius = static_cast<double>(view.shapes[static_cast<size_t>(c)].radius);
    for (const int32_t token : view.Tokens(c)) {
      std::vector<float> rest = rows[static_cast<size_t>(token)];
      double squares = 0.0, product = 0.0;
      for (size_t j = 0; j < rest.size(); ++j) {
        rest[j] -= view.Centroid(c)[j];
        squares += static_cast<double>(rest[j]) * static_cast<double>(rest[j]);
        product += static_cast<double>(rest[j]) * static_cast<double>(view.Centroid(c)[j]);
      }
      const double logit = product + squares;
      const double norm = std::sqrt(squares);
      EXPECT_LE(logit, product + radius * norm * (1.0 + 1e-6));
      least_slack = std::min(least_slack, product + 0.9 * radius * norm - logit);
    }
  }
  EXPECT_LT(least_slack, 0.0);
}

TEST_F(Clusters, TopIsTheDenseHeadsWhateverTheHead) {
  for (const HeadKind head_kind : kAllHeadKinds) {
    if (head_kind == HeadKind::kOneHuge) continue;  // its logits overflow: below
    for (const auto& [metric, folds_bias] : kKinds) {
      const int64_t vocab = random_.Between(60, 500);
      const Rows rows = MakeHead(head_kind, vocab, random_.Between(1, 90), random_);
      const Batch weight(rows, DType::kBf16);
      const std::vector<float> bias = MakeBias(vocab, random_);
      const DenseHead head = {Matrix(weight), bias};
      research::ClusterSearch search(
          head, research::HeadClusters::Build(
                    head, {.metric = metric, .clusters = 20, .folds_bias = folds_bias}));
      for (const HiddenKind kind : kAllHiddenKinds) {
        const Batch hidden({MakeHidden(kind, rows, random_)}, DType::kF32);
        for (const int32_t k : {1, 10, 50}) {
          ExpectFirst(search.Search(Matrix(hidden), {.k = k}), DenseOf(head, hidden),
                      static_cast<size_t>(k),
                      std::string(Name(metric)) + " k " + std::to_string(k));
        }
      }
    }
  }
}

// What k-means is: a row lies with the mean that is nearest (of directions: at the least angle),
// and no round takes the rows farther from their means.
TEST_F(Clusters, EveryRoundBringsTheRowsNearerToTheirMeans) {
  const Rows rows = PlantedHead(600, 24, 30, 0.02, random_);
  const Batch weight(rows, DType::kF32);
  for (const research::ClusterMetric metric :
       {research::ClusterMetric::kEuclidean, research::ClusterMetric::kSpherical}) {
    const auto distance = [&](int32_t token, std::span<const float> mean) {
      double squares = 0.0, product = 0.0, norm = 0.0;
      for (size_t j = 0; j < mean.size(); ++j) {
        const auto w = static_cast<double>(rows[static_cast<size_t>(token)][j]);
        const auto m = static_cast<double>(mean[j]);
        squares += (w - m) * (w - m);
        product += w * m;
        norm += w * w;
      }
      return metric == research::ClusterMetric::kEuclidean ? squares
                                                           : 1.0 - product / std::sqrt(norm);
    };
    double first = 0.0, before = INFINITY;
    constexpr int32_t kEnd = 60;  // nothing has moved for long
    for (const int32_t rounds : {0, 1, 2, 4, kEnd}) {
      const research::HeadClusters clusters = research::HeadClusters::Build(
          {Matrix(weight), {}}, {.metric = metric, .clusters = 40, .rounds = rounds, .seed = 1});
      const research::ClusterView view = research::ClusterAccess::View(clusters);
      const auto mean = [&](int64_t c) { return std::span<const float>(view.Centroid(c), 24); };
      // 1e-6: rows are given away by products that are computed in fp32.
      double sum = 0.0;
      for (int64_t c = 0; c < clusters.clusters(); ++c) {
        for (const int32_t token : view.Tokens(c)) {
          const double own = distance(token, mean(c));
          for (int64_t other = 0; other < clusters.clusters(); ++other) {
            ASSERT_LE(own, distance(token, mean(other)) + 1e-6) << Name(metric) << " " << rounds;
          }
          sum += own;
        }
        if (rounds == kEnd) ExpectMeanOf(view.Tokens(c), rows, metric, mean(c));
      }
      EXPECT_LE(sum, before + 1e-6) << Name(metric) << " " << rounds;
      if (rounds == 0) first = sum;
      before = sum;
    }
    EXPECT_LT(before, 0.8 * first) << Name(metric);
  }
}

TEST_F(Clusters, PlantedClustersSpareHalfOfTheRowsAndMoreWithTheSameTokens) {
  const Rows rows = PlantedHead(4000, 64, 40, 0.001, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  for (const research::ClusterMetric metric :
       {research::ClusterMetric::kEuclidean, research::ClusterMetric::kSpherical}) {
    research::ClusterSearch search(
        head, research::HeadClusters::Build(head, {.metric = metric, .clusters = 80}));
    int64_t opened = 0;
    constexpr int kSteps = 20;
    for (int step = 0; step < kSteps; ++step) {
      const Batch hidden({MakeHidden(HiddenKind::kPeaked, rows, random_)}, DType::kF32);
      const research::ClusterAnswer answer = search.Search(Matrix(hidden), {.k = 10});
      ExpectFirst(answer, DenseOf(head, hidden), 10, std::string(Name(metric)));
      opened += answer.rows_opened;
    }
    EXPECT_LE(opened, kSteps * 4000 / 2) << Name(metric);
  }
}

TEST_F(Clusters, SoftmaxIsWithinEpsilonAndTopPIsThatOfAllTokens) {
  const Rows rows = PlantedHead(2000, 32, 40, 0.002, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  research::ClusterSearch search(head, research::HeadClusters::Build(head, {.clusters = 60}));
  for (int step = 0; step < 20; ++step) {
    std::vector<float> state = MakeHidden(HiddenKind::kPeaked, rows, random_);
    for (float& h : state) h *= 4.0f;
    const Batch hidden({state}, DType::kF32);
    const std::vector<float> logits = DenseOf(head, hidden);
    const std::vector<int32_t> ids = Sorted(logits);
    double mass = 0.0;
    for (const float x : logits)
      mass += std::exp(static_cast<double>(x - logits[static_cast<size_t>(ids[0])]));

    const research::ClusterAnswer softmax = search.Search(
        Matrix(hidden), {.certificate = research::ClusterCertificate::kSoftmax, .epsilon = 0.05});
    double kept = 0.0;
    for (const float x : softmax.logits)
      kept += std::exp(static_cast<double>(x - logits[static_cast<size_t>(ids[0])]));
    EXPECT_LE(1.0 - kept / mass, softmax.epsilon + 1e-12);  // the variation: all that is left out
    EXPECT_LE(softmax.epsilon, 0.05);

    const research::ClusterAnswer top_p = search.Search(
        Matrix(hidden), {.certificate = research::ClusterCertificate::kTopP, .p = 0.9});
    size_t count = 0;
    double sum = 0.0;
    while (sum < 0.9 * mass) {
      sum += std::exp(static_cast<double>(logits[static_cast<size_t>(ids[count])] -
                                          logits[static_cast<size_t>(ids[0])]));
      ++count;
    }
    ExpectFirst(top_p, logits, count, "top-p");
  }
}

// Many that weigh next to nothing, so that what rounding may have done to a sum is more than one of
// them: it says where the nucleus ends, and there is an answer.
TEST_F(Clusters, ANucleusThatEndsAmongNextToNothingEndsThere) {
  std::vector<float> bias(500, 0.0f);
  for (size_t v = 200; v < 500; ++v) bias[v] = -25.0f;
  const Batch weight(Rows(500, std::vector<float>(8, 0.0f)), DType::kF32);
  const DenseHead head = {Matrix(weight), bias};
  const Batch hidden({std::vector<float>(8, 1.0f)}, DType::kF32);
  research::ClusterSearch search(head, research::HeadClusters::Build(head, {.clusters = 9}));
  for (const auto& [p, least, most] : {std::tuple{0.2525, size_t{51}, size_t{51}},
                                       std::tuple{1.0 - 5e-12, size_t{420}, size_t{440}}}) {
    const research::ClusterAnswer answer =
        search.Search(Matrix(hidden), {.certificate = research::ClusterCertificate::kTopP, .p = p});
    EXPECT_GE(answer.ids.size(), least);
    EXPECT_LE(answer.ids.size(), most);
    ExpectFirst(answer, bias, answer.ids.size(), "top-p");
  }
}

TEST_F(Clusters, EveryFallbackIsTakenForItsReason) {
  const Rows rows = PlantedHead(4000, 32, 200, 0.004, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const research::HeadClusters clusters = research::HeadClusters::Build(head, {.clusters = 300});
  std::vector<float> state = MakeHidden(HiddenKind::kPeaked, rows, random_);
  for (float& h : state) h *= 4.0f;
  const Batch hidden({state}, DType::kF32);
  // What the certificate needs, by a search that may open all.
  auto needed = [&](const research::ClusterQuestion& question) {
    research::ClusterSearch search(head, clusters, {.rows = 4000, .first_steps = 0});
    return static_cast<double>(search.Search(Matrix(hidden), question).rows_opened);
  };
  auto path = [&](double budget, const research::ClusterQuestion& question, bool relaxes = false) {
    research::ClusterSearch search(head, clusters,
                                   {.rows = budget, .first_steps = 0, .relaxes = relaxes});
    const research::ClusterAnswer answer = search.Search(Matrix(hidden), question);
    EXPECT_EQ(answer.reason == research::ClusterReason::kNone,
              answer.path != research::ClusterPath::kDense);
    return answer.path;
  };
  const research::ClusterQuestion top = {.k = 50};
  EXPECT_EQ(path(needed(top), top), research::ClusterPath::kBudget);
  EXPECT_EQ(path(needed(top) * 0.7, top), research::ClusterPath::kExpanded);
  EXPECT_EQ(path(needed(top) * 0.2, top), research::ClusterPath::kDense);
  // An epsilon that needs far more rows than twice as much does, for a budget between them.
  research::ClusterQuestion softmax = {.certificate = research::ClusterCertificate::kSoftmax,
                                       .epsilon = 0.2};
  double between = 0.0;
  for (; between == 0.0 && softmax.epsilon > 1e-12; softmax.epsilon *= 0.5) {
    research::ClusterQuestion looser = softmax;
    looser.epsilon *= 2.0;
    const double middle = (needed(looser) + needed(softmax)) / 2.0;
    if (middle + 60.0 < needed(softmax) / 1.1) between = middle / 2.0;
    if (between > 0.0) break;
  }
  ASSERT_GT(between, 0.0);
  EXPECT_EQ(path(between, softmax, true), research::ClusterPath::kRelaxed);
  EXPECT_EQ(path(between, softmax, false), research::ClusterPath::kDense);

  research::ClusterSearch search(head, clusters);
  Batch spoiled({std::vector<float>(32, NAN)}, DType::kF32);
  EXPECT_EQ(search.Search(Matrix(spoiled), top).reason, research::ClusterReason::kHidden);
  const Rows huge = MakeHead(HeadKind::kOneHuge, 100, 8, random_);
  const Batch huge_weight(huge, DType::kF32);
  const DenseHead huge_head = {Matrix(huge_weight), {}};
  research::ClusterSearch overflow(huge_head,
                                   research::HeadClusters::Build(huge_head, {.clusters = 5}));
  const Batch large({std::vector<float>(8, 1e15f)}, DType::kF32);
  EXPECT_EQ(overflow.Search(Matrix(large), top).reason, research::ClusterReason::kLogit);
}

TEST_F(Clusters, TheBudgetGrowsWhereTooManyAnswersTakeAllRowsAndTheFirstQuestionsHaveMore) {
  const Rows rows = MakeHead(HeadKind::kNormal, 500, 32, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  research::ClusterSearch search(head, research::HeadClusters::Build(head, {.clusters = 50}),
                                 {.rows = 1, .first_rows = 500, .first_steps = 2, .gain = 0.1});
  const Batch hidden({MakeHidden(HiddenKind::kNormal, rows, random_)}, DType::kF32);
  for (int step = 0; step < 2; ++step) {
    EXPECT_NE(search.Search(Matrix(hidden), {.k = 5}).path, research::ClusterPath::kDense);
  }
  const double before = search.budget_rows();
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(search.Search(Matrix(hidden), {.k = 5}).path, research::ClusterPath::kDense);
  }
  EXPECT_GT(search.budget_rows(), before);
}

// Sixty tokens have biases that fall as 1 / rank.
std::vector<float> HeavyTailedBias(int64_t vocab, Random& random) {
  std::vector<float> bias;
  for (int64_t v = 0; v < vocab; ++v) bias.push_back(static_cast<float>(0.01 * random.Normal()));
  for (int rank = 1; rank <= 60; ++rank) {
    bias[random.Below(bias.size())] = 12.0f / static_cast<float>(rank);
  }
  return bias;
}

TEST_F(Clusters, TokensThatLeadByTheirBiasAreOpenedWithoutTheRestOfTheirClusters) {
  const Rows rows = PlantedHead(4000, 64, 40, 0.001, random_);
  const Batch weight(rows, DType::kF32);
  const std::vector<float> bias = HeavyTailedBias(4000, random_);
  const DenseHead head = {Matrix(weight), bias};
  for (const research::ClusterMetric metric :
       {research::ClusterMetric::kEuclidean, research::ClusterMetric::kSpherical}) {
    std::vector<research::ClusterSearch> searches;
    for (const int32_t leaders : {0, 3}) {
      searches.emplace_back(head,
                            research::HeadClusters::Build(
                                head, {.metric = metric, .clusters = 80, .bias_leaders = leaders}));
    }
    int64_t opened[2] = {};
    for (int step = 0; step < 20; ++step) {
      const Batch hidden({MakeHidden(HiddenKind::kPeaked, rows, random_)}, DType::kF32);
      for (size_t s = 0; s < 2; ++s) {
        const research::ClusterAnswer answer = searches[s].Search(Matrix(hidden), {.k = 10});
        ExpectFirst(answer, DenseOf(head, hidden), 10, std::string(Name(metric)));
        opened[s] += answer.rows_opened;
      }
    }
    EXPECT_LT(opened[1], opened[0] / 2) << Name(metric);
  }
}

// The bias of the shape behind it, around the same centroid, in the place of a leader's own.
TEST_F(Clusters, TheBiasOfAnotherRowIsNoBound) {
  const Rows rows = MakeHead(HeadKind::kNormal, 400, 16, random_);
  const Batch weight(rows, DType::kF32);
  const std::vector<float> bias = HeavyTailedBias(400, random_);
  const DenseHead head = {Matrix(weight), bias};
  const Batch hidden({std::vector<float>(16, 0.0f)}, DType::kF32);  // the logits are the biases
  const auto violations = [&](const research::HeadClusters& clusters) {
    std::vector<double> bounds(static_cast<size_t>(clusters.clusters()));
    research::ClusterSearch(head, clusters).Bounds(Matrix(hidden), bounds);
    return Violations(clusters, bounds, DenseOf(head, hidden));
  };
  const research::HeadClusters clusters = research::HeadClusters::Build(head, {.clusters = 12});
  EXPECT_EQ(violations(clusters), 0);
  const std::span<const research::ClusterShape> shapes =
      research::ClusterAccess::View(clusters).shapes;
  EXPECT_GT(shapes.size(), 24u);  // there are leaders
  for (size_t c = 0; c + 1 < shapes.size(); ++c) {
    if (shapes[c].centroid != shapes[c + 1].centroid) continue;
    EXPECT_EQ(shapes[c].size, 1);
    auto& shape = const_cast<research::ClusterShape&>(shapes[c]);
    const float own = std::exchange(shape.bias, shapes[c + 1].bias);
    EXPECT_EQ(violations(clusters), own > shapes[c + 1].bias ? 1 : 0);
    shape.bias = own;
  }
}

TEST_F(Clusters, FineTokensShareNoClusterWithOthers) {
  const Rows rows = MakeHead(HeadKind::kNormal, 200, 16, random_);
  const Batch weight(rows, DType::kF32);
  const std::vector<int32_t> fine = {3, 4, 5, 150, 199};
  const research::HeadClusters clusters = research::HeadClusters::Build(
      {Matrix(weight), {}}, {.clusters = 10, .fine_tokens = fine, .fine_clusters = 3});
  const research::ClusterView view = research::ClusterAccess::View(clusters);
  EXPECT_LE(clusters.clusters(), 13);
  for (int64_t c = 0; c < clusters.clusters(); ++c) {
    size_t count = 0;
    for (const int32_t token : view.Tokens(c)) {
      count += std::count(fine.begin(), fine.end(), token) != 0 ? 1 : 0;
    }
    EXPECT_TRUE(count == 0 || count == view.Tokens(c).size());
  }
}

TEST_F(Clusters, TellWhichShareOfTheirRoundsIsDone) {
  const Rows rows = MakeHead(HeadKind::kNormal, 60, 16, random_);
  const Batch weight(rows, DType::kF32);
  const std::vector<int32_t> fine = {3, 4, 5, 59};
  for (const bool has_fine : {false, true}) {
    std::vector<double> shares;
    research::ClusterOptions options = {.clusters = 6, .rounds = 4};
    if (has_fine) options.fine_tokens = fine, options.fine_clusters = 2;
    options.progress_context = &shares;
    options.progress = [](void* context, double share) {
      static_cast<std::vector<double>*>(context)->push_back(share);
    };
    research::HeadClusters::Build({Matrix(weight), {}}, options);
    const std::vector<double> expected =
        has_fine ? std::vector<double>{0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0}
                 : std::vector<double>{0.25, 0.5, 0.75, 1.0};
    EXPECT_EQ(shares, expected);
  }
}

TEST_F(Clusters, AWeightThatIsNotFiniteAndACountThatIsNoneAreNamed) {
  Rows rows = MakeHead(HeadKind::kNormal, 10, 8, random_);
  rows[6][3] = INFINITY;
  const Batch weight(rows, DType::kF32);
  ExpectError([&] { research::HeadClusters::Build({Matrix(weight), {}}, {.clusters = 2}); },
              "weight[6][3]", "inf", "a finite number");
  ExpectError(
      [&] {
        research::HeadClusters::Build({Matrix(weight), {}}, {.clusters = 2, .bias_leaders = -1});
      },
      "options.bias_leaders", "-1", "[0, 8388608]");
}

TEST_F(Clusters, OfAHeadOfOneRowAreOneWhateverItsBias) {
  const Batch weight({{1.0f, 2.0f}}, DType::kF32);
  const std::vector<float> bias = {3.0f};
  for (const DenseHead& head : {DenseHead{Matrix(weight), {}}, DenseHead{Matrix(weight), bias}}) {
    EXPECT_EQ(research::HeadClusters::Build(head, {.clusters = 1}).clusters(), 1);
  }
}

}  // namespace
}  // namespace sluice::test
