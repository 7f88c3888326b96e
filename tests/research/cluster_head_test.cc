// Rows in clusters as the head of a Generator: the dense head's tokens, whatever the request.
#include "sluice/research/cluster_head.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "sluice/generator.hpp"
#include "tests/engine/tiny_checkpoint.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

struct Written {
  std::vector<std::vector<int32_t>> tokens;
  GenerationStats stats;
};

Written Write(const Checkpoint& checkpoint, const GenerationRequest& request,
              const GeneratorOptions& options) {
  Generator generator(checkpoint, request, options);
  while (!generator.Step().empty()) {
  }
  Written written{{}, generator.stats()};
  for (int32_t i = 0; i < request.choices; ++i) {
    const auto tokens = generator.OutputTokens(i);
    written.tokens.emplace_back(tokens.begin(), tokens.end());
  }
  return written;
}

class ClusterHeads : public ::testing::Test {
 protected:
  ClusterHeads() : checkpoint_(Checkpoint::FromFiles(files_.view())) {}

  std::shared_ptr<research::ClusterHead> Head(const research::ClusterBudget& budget = {}) const {
    return std::make_shared<research::ClusterHead>(
        checkpoint_.head(),
        research::HeadClusters::Build(checkpoint_.head(), {.clusters = clusters_}), budget);
  }

  TinyFiles files_;
  Checkpoint checkpoint_;
  int64_t clusters_ = 40;
};

TEST_F(ClusterHeads, GivesTheDenseHeadsTokensWithinAnyBudget) {
  const std::vector<int32_t> prompt = checkpoint_.tokenizer().Encode("for you and me");
  SamplingParams greedy, drawn, narrow;
  greedy.temperature = 0;
  drawn.top_k = 30;
  drawn.top_p = 0.9f;
  narrow.top_k = 5;
  narrow.min_p = 0.01f;
  uint64_t seed = 40;
  for (SamplingParams params : {greedy, drawn, narrow}) {
    params.seed = ++seed;
    const GenerationRequest request{
        .params = params, .prompt = prompt, .choices = 3, .max_tokens = 20, .ignores_end = true};
    const Written dense = Write(checkpoint_, request, {});
    for (const double rows : {1.0, 60.0, 427.0}) {
      const Written clusters =
          Write(checkpoint_, request, {.top_k_head = Head({.rows = rows, .first_rows = rows})});
      EXPECT_EQ(clusters.tokens, dense.tokens) << "seed " << seed << ", budget " << rows;
      EXPECT_EQ(clusters.stats.certified.rows, clusters.stats.output_tokens);
      EXPECT_EQ(clusters.stats.dense_rows, (std::array<int64_t, kDenseCauses>{}));
      if (rows == 1.0) EXPECT_EQ(clusters.stats.certified.dense_rows, dense.stats.output_tokens);
      if (rows == 427.0) EXPECT_EQ(clusters.stats.certified.dense_rows, 0);
    }
  }
}

TEST_F(ClusterHeads, LeavesOtherRequestsToTheDenseHeadAndSaysWhy) {
  const std::vector<int32_t> prompt = checkpoint_.tokenizer().Encode("for you and me");
  SamplingParams changed, listed, whole, tied;
  changed.top_k = listed.top_k = tied.top_k = 9;
  tied.profile.ties = Ties::kAll;  // of the k-th too, which may be more than k tokens
  changed.repetition_penalty = 1.3f;
  listed.logprobs = 2;
  whole.top_p = 0.8f;
  const std::pair<SamplingParams, DenseCause> cases[] = {{changed, DenseCause::kAdjustments},
                                                         {listed, DenseCause::kLogprobs},
                                                         {whole, DenseCause::kMass},
                                                         {tied, DenseCause::kMass}};
  for (auto [params, cause] : cases) {
    params.seed = 3;
    const GenerationRequest request{.params = params, .prompt = prompt, .max_tokens = 10};
    const Written dense = Write(checkpoint_, request, {});
    const Written clusters = Write(checkpoint_, request, {.top_k_head = Head()});
    EXPECT_EQ(clusters.tokens, dense.tokens) << Name(cause);
    EXPECT_EQ(clusters.stats.certified.rows, 0) << Name(cause);
    EXPECT_EQ(clusters.stats.dense_rows[static_cast<size_t>(cause)], clusters.stats.output_tokens)
        << Name(cause);
  }
}

TEST_F(ClusterHeads, OpensMoreForTheFirstTokensOfEachRequest) {
  clusters_ = 427;  // a row each, so that a budget is met by the row
  const auto head = Head({.rows = 10, .first_rows = 100, .first_steps = 2, .gain = 0.0});
  Random random(5);
  std::vector<float> hidden(static_cast<size_t>(checkpoint_.head().weight.columns));
  for (float& x : hidden) x = static_cast<float>(random.Normal());
  const MatrixView state{hidden.data(), 1, std::ssize(hidden), std::ssize(hidden)};
  std::vector<int32_t> ids(60);
  std::vector<float> logits(60);
  for (int round = 0; round < 2; ++round) {  // a second request is a first one again
    EXPECT_FALSE(head->TopK(state, 0, ids, logits).is_whole);
    EXPECT_FALSE(head->TopK(state, 1, ids, logits).is_whole);
    EXPECT_TRUE(head->TopK(state, 2, ids, logits).is_whole);
  }
}

TEST_F(ClusterHeads, FindsTheTokensOfDigitsAndSymbols) {
  const Tokenizer& tokenizer = checkpoint_.tokenizer();
  const std::vector<int32_t> found = research::FineTokens(tokenizer, checkpoint_.vocab());
  EXPECT_TRUE(std::ranges::is_sorted(found));
  const auto has = [&](int32_t id) { return std::ranges::binary_search(found, id); };
  for (const char* text : {"7", ";", "("}) {
    const std::vector<int32_t> ids = tokenizer.Encode(text, {.add_special_tokens = false});
    ASSERT_EQ(ids.size(), 1u) << text;
    EXPECT_TRUE(has(ids[0])) << text;
  }
  for (const char* text : {"a", " ", "\n"}) {
    const std::vector<int32_t> ids = tokenizer.Encode(text, {.add_special_tokens = false});
    ASSERT_EQ(ids.size(), 1u) << text;
    EXPECT_FALSE(has(ids[0])) << text;
  }
  EXPECT_TRUE(research::FineTokens(tokenizer, 0).empty());

  const auto options = research::WithFineTokens({.clusters = 20}, found, checkpoint_.vocab());
  EXPECT_EQ(options.fine_tokens.size(), found.size());
  EXPECT_EQ(options.clusters, 20);
  EXPECT_EQ(options.fine_clusters, 2 * 20 * std::ssize(found) / checkpoint_.vocab());
  ASSERT_LT(checkpoint_.vocab(),
            research::ClusterOptions{}.clusters);  // a head that is too small for them
  const auto usual = research::WithFineTokens({}, found, checkpoint_.vocab());
  EXPECT_EQ(usual.clusters, checkpoint_.vocab() - std::ssize(found));
  EXPECT_EQ(research::HeadClusters::Build(checkpoint_.head(), usual).vocab(), checkpoint_.vocab());
}

TEST_F(ClusterHeads, AFileOfPlanesIsRefusedByItsName) {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("sluice_cluster_head_" + std::to_string(::getpid()));
  HeadPlanesFor(HeadChoice::kStrict, checkpoint_, {})->Save(path);
  ExpectError([&] { research::HeadClusters::Load(path, checkpoint_.head()); }, "clusters",
              "\"" + path + "\" (planes of a certified head)",
              "clusters of a head, which HeadClusters::Save wrote");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace sluice::test
