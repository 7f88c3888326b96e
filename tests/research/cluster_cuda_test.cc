// Clusters by a GPU's k-means: a partition, as good as the processor's, with bounds that hold, and
// the same every time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "research/clusters/cluster_file.h"
#include "sluice/error.hpp"
#include "sluice/research/device_clusters.hpp"
#include "tests/head/certified.h"
#include "tests/support/device.h"

namespace sluice::test {
namespace {

class ClustersCuda : public DeviceTest {
 protected:
  // Every token is in one cluster.
  static void ExpectPartition(const research::HeadClusters& clusters) {
    const research::ClusterView view = research::ClusterAccess::View(clusters);
    std::vector<int> times(static_cast<size_t>(clusters.vocab()));
    for (int64_t c = 0; c < clusters.clusters(); ++c) {
      EXPECT_FALSE(view.Tokens(c).empty());
      for (const int32_t token : view.Tokens(c)) ++times[static_cast<size_t>(token)];
    }
    EXPECT_EQ(std::count(times.begin(), times.end(), 1), std::ssize(times));
  }
  // Squares of the distances of rows and centroids, or of their directions.
  static double Objective(const research::HeadClusters& clusters, const Rows& rows,
                          bool is_spherical) {
    const research::ClusterView view = research::ClusterAccess::View(clusters);
    double sum = 0.0;
    for (int64_t c = 0; c < clusters.clusters(); ++c) {
      for (const int32_t token : view.Tokens(c)) {
        const std::vector<float>& row = rows[static_cast<size_t>(token)];
        double squares = 0.0;
        for (const float w : row) squares += static_cast<double>(w) * static_cast<double>(w);
        const double norm = is_spherical && squares > 0.0 ? std::sqrt(squares) : 1.0;
        for (size_t j = 0; j < row.size(); ++j) {
          const double rest =
              static_cast<double>(row[j]) / norm - static_cast<double>(view.Centroid(c)[j]);
          sum += rest * rest;
        }
      }
    }
    return sum;
  }
  static std::string BytesOf(const research::HeadClusters& clusters) {
    const std::string path = testing::TempDir() + "sluice_cluster_cuda";
    clusters.Save(path);
    std::ifstream in(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(in), {});
    std::filesystem::remove(path);
    return bytes;
  }

  Random random_{71};
  research::DeviceMeans means_;
};

TEST_F(ClustersCuda, AreAPartitionAsGoodAsTheProcessorsAndTheSameTwice) {
  // Through blocks of 128 points and of 128 means, and elements sixteen at a time, or not.
  for (const auto& [vocab, dim, count] : {std::tuple{1500, 70, 200}, std::tuple{300, 16, 128},
                                          std::tuple{130, 1, 5}, std::tuple{64, 33, 64}}) {
    const Rows rows = MakeHead(HeadKind::kTrained, vocab, dim, random_);
    const Batch weight(rows, DType::kF32);
    const DenseHead head = {Matrix(weight), {}};
    for (const research::ClusterMetric metric :
         {research::ClusterMetric::kEuclidean, research::ClusterMetric::kSpherical}) {
      research::ClusterOptions options = {
          .metric = metric, .clusters = count, .rounds = 8, .seed = 3};
      const research::HeadClusters of_threads = research::HeadClusters::Build(head, options);
      options.means = &means_;
      const research::HeadClusters of_device = research::HeadClusters::Build(head, options);
      const std::string what =
          std::to_string(vocab) + " x " + std::to_string(dim) + " " + std::string(Name(metric));
      ExpectPartition(of_device);
      const bool is_spherical = metric == research::ClusterMetric::kSpherical;
      // Sums in another order decide few points otherwise; where that leads is a few percent.
      EXPECT_LE(Objective(of_device, rows, is_spherical),
                1.03 * Objective(of_threads, rows, is_spherical) + 1e-6)
          << what;
      EXPECT_EQ(BytesOf(of_device), BytesOf(research::HeadClusters::Build(head, options))) << what;
    }
  }
}

TEST_F(ClustersCuda, BoundsHoldOverAllRowsOfEveryKindOfHeadAndState) {
  for (const HeadKind head_kind : kAllHeadKinds) {
    for (const bool is_folded : {false, true}) {
      const int64_t vocab = random_.Between(2, 300);
      const Rows rows = MakeHead(head_kind, vocab, random_.Between(1, 200), random_);
      const Batch weight(rows, DType::kF32);
      const std::vector<float> bias = MakeBias(vocab, random_);
      const DenseHead head = {Matrix(weight), bias};
      std::vector<int32_t> fine;
      for (int32_t v = 0; v < vocab / 4; v += 2) fine.push_back(v);
      const research::HeadClusters clusters = research::HeadClusters::Build(
          head, {.clusters = random_.Between(1, vocab / 2),
                 .fine_tokens = fine,
                 .fine_clusters = std::min<int64_t>(2, std::ssize(fine)),
                 .folds_bias = is_folded,
                 .means = &means_});
      ExpectPartition(clusters);
      const research::ClusterSearch search(head, clusters);
      const research::ClusterView view = research::ClusterAccess::View(clusters);
      for (const HiddenKind kind : kAllHiddenKinds) {
        const Batch hidden({MakeHidden(kind, rows, random_)}, DType::kF32);
        std::vector<double> bounds(static_cast<size_t>(clusters.clusters()));
        search.Bounds(Matrix(hidden), bounds);
        const std::vector<float> logits = DenseLogits(head, {Matrix(hidden), {}})[0];
        int64_t wrong = 0;
        for (size_t c = 0; c < bounds.size(); ++c) {
          for (const int32_t token : view.Tokens(static_cast<int64_t>(c))) {
            wrong += static_cast<double>(logits[static_cast<size_t>(token)]) > bounds[c] ? 1 : 0;
          }
        }
        EXPECT_EQ(wrong, 0) << static_cast<int>(head_kind) << " " << is_folded;
      }
    }
  }
}

TEST_F(ClustersCuda, EveryRoundIsTold) {
  const Rows rows = MakeHead(HeadKind::kNormal, 200, 20, random_);
  const Batch weight(rows, DType::kF32);
  std::vector<double> shares;
  research::ClusterOptions options = {.clusters = 10, .rounds = 4, .means = &means_};
  options.progress = [](void* context, double share) {
    static_cast<std::vector<double>*>(context)->push_back(share);
  };
  options.progress_context = &shares;
  research::HeadClusters::Build({Matrix(weight), {}}, options);
  EXPECT_EQ(shares, (std::vector<double>{0.25, 0.5, 0.75, 1.0}));
}

TEST_F(ClustersCuda, MorePointsThanADeviceHasRoomForAreAnErrorThatSaysHowMuchIsNeeded) {
  const std::vector<int32_t> rows(4'000'000);
  const research::MeansTask task = {.width = int64_t{1} << 20, .rows = rows};  // 16 terabytes
  try {
    means_.Find(task);
    ADD_FAILURE() << "there was room";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kExhausted);
    EXPECT_GE(std::stod(error.value()), 1.6e13) << error.value();
  }
  Require(cudaDeviceSynchronize());  // and nothing of it is left to the next call
}

}  // namespace
}  // namespace sluice::test
