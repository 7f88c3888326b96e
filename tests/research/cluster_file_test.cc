// The file of a head in clusters: the clusters it was made of, or the reason why it is refused.
#include "research/clusters/cluster_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "head/certified/plane_hash.h"
#include "tests/head/certified.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

class ClusterFile : public ::testing::Test {
 protected:
  ClusterFile()
      : weight_(MakeHead(HeadKind::kTrained, 90, 20, random_), DType::kBf16),
        path_(std::filesystem::temp_directory_path() /
              ("sluice_clusters_" + std::to_string(::getpid()))) {
    research::HeadClusters::Build(head(), {.clusters = 7}).Save(path_);
  }
  ~ClusterFile() override { std::filesystem::remove(path_); }

  DenseHead head() const { return {Matrix(weight_), bias_}; }
  std::string Read() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  void ExpectRefused(const std::string& found, const std::string& allowed) const {
    ExpectError([&] { research::HeadClusters::Load(path_, head()); }, "clusters",
                "\"" + path_ + "\" (" + found + ")", allowed);
  }

  Random random_{31};
  Batch weight_;
  std::vector<float> bias_ = [] {
    std::vector<float> bias(90, 0.5f);
    bias[7] = bias[50] = 3.0f;  // leaders
    return bias;
  }();
  std::string path_;
};

TEST_F(ClusterFile, IsTheSameClustersAndThoseOfAnyNumberOfThreads) {
  const research::HeadClusters loaded = research::HeadClusters::Load(path_, head());
  const research::HeadClusters built = research::HeadClusters::Build(head(), {.clusters = 7});
  EXPECT_EQ(loaded.clusters(), built.clusters());
  const std::string bytes = Read();
  ASSERT_EQ(bytes.size(), built.bytes());
  const std::string again = path_ + ".again";
  built.Save(again);
  std::ifstream in(again, std::ios::binary);
  EXPECT_EQ(bytes, std::string(std::istreambuf_iterator<char>(in), {}));
  std::filesystem::remove(again);
}

TEST_F(ClusterFile, OfAnotherHeadDamagedOrCutIsRefusedWithTheReason) {
  const std::string bytes = Read();
  bias_[4] = 0.75f;
  ExpectRefused("of another head", "clusters of these weights and biases: build them again");
  bias_[4] = 0.5f;
  std::string spoiled = bytes;
  spoiled[spoiled.size() / 2] ^= 1;
  Write(spoiled);
  ExpectRefused("its clusters are damaged", "clusters with the hash that its header says");
  Write(bytes.substr(0, bytes.size() - 1));
  ExpectRefused("truncated: " + std::to_string(bytes.size() - 1) + " bytes",
                std::to_string(bytes.size()) + " bytes, as its header says");
  Write(bytes.substr(0, 10));
  ExpectRefused(
      "truncated: 10 bytes",
      "at least the " + std::to_string(sizeof(research::ClusterHeader)) + " bytes of a header");
  spoiled = bytes;
  spoiled[8] = 1;
  Write(spoiled);
  ExpectRefused("version 1", "version 2: build the clusters again");
  spoiled = bytes;
  spoiled[40] ^= 1;
  Write(spoiled);
  ExpectRefused("its header is damaged", "a header with the hash that it says");
  spoiled[0] = 'X';
  Write(spoiled);
  ExpectRefused("does not begin with SLUICEHC", "a file that HeadClusters::Save wrote");
}

TEST_F(ClusterFile, ThatLeadsOutOfItselfIsRefusedThoughItsHashesHold) {
  const std::string bytes = Read();
  const auto expect_refused = [&](auto spoil) {
    std::string spoiled = bytes;
    const auto all = std::as_bytes(std::span(spoiled));
    auto& header = *reinterpret_cast<research::ClusterHeader*>(spoiled.data());
    const research::ClusterLayout layout(header);
    spoil(*reinterpret_cast<research::ClusterShape*>(&spoiled[layout.shapes]),
          *reinterpret_cast<int32_t*>(&spoiled[layout.tokens]), header);
    header.sections_hash = HashOfPlanes(all.subspan(layout.shapes), {});
    header.header_hash = HashOf(all.first(offsetof(research::ClusterHeader, header_hash)));
    Write(spoiled);
    ExpectRefused("its clusters are damaged", "clusters with the hash that its header says");
  };
  expect_refused(
      [](research::ClusterShape& s, int32_t&, const research::ClusterHeader&) { s.begin = -1; });
  expect_refused([](research::ClusterShape& s, int32_t&, const research::ClusterHeader& h) {
    s.size = static_cast<int32_t>(h.vocab - s.begin) + 1;
  });
  expect_refused([](research::ClusterShape& s, int32_t&, const research::ClusterHeader& h) {
    s.centroid = static_cast<int32_t>(h.centroids);
  });
  expect_refused([](research::ClusterShape&, int32_t& token, const research::ClusterHeader& h) {
    token = static_cast<int32_t>(h.vocab);
  });
}

}  // namespace
}  // namespace sluice::test
