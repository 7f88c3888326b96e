// Processes that each have some rows of a certified head give what the whole head gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/head/certified.h"
#include "tests/head/heads.h"
#include "tests/parallel/ranks.h"
#include "tests/parallel/slices.h"
#include "tests/support/params.h"
#include "tests/support/run.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

struct Case {
  Rows weights;
  Rows hidden;
  std::vector<float> bias;
  std::vector<int32_t> bitmask;  // of the whole rows
  DType dtype = DType::kBf16;
  CertificateKind kind = CertificateKind::kDither4;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;
  DrawMethod method = DrawMethod::kGumbel;

  int64_t vocab() const { return std::ssize(weights); }
};

// The head's rows of a slice, and what they own.
class OwnHead {
 public:
  OwnHead(const Case& c, int64_t first, int64_t tokens)
      : weight_(Rows(c.weights.begin() + first, c.weights.begin() + first + tokens), c.dtype),
        bitmask_(OwnBits(c.bitmask, {c.vocab(), first, tokens})) {
    if (!c.bias.empty()) bias_.assign(c.bias.begin() + first, c.bias.begin() + first + tokens);
  }

  DenseHead dense() const { return {Matrix(weight_), bias_}; }
  CertifiedHead Certified(CertificateKind kind) const {
    return {dense(), HeadPlanes::Build(dense().weight, {.kind = kind, .seed = 5})};
  }
  std::span<const int32_t> bitmask() const { return bitmask_; }

 private:
  Batch weight_;
  std::vector<float> bias_;
  std::vector<int32_t> bitmask_;
};

std::vector<TokenResult> OfTheWholeHead(const Case& c) {
  const Batch hidden(c.hidden, c.dtype);
  const OwnHead head(c, 0, c.vocab());
  const Batch logits(DenseLogits(head.dense(), {Matrix(hidden), head.bitmask()}));
  return Sampled({logits.view(), c.params, c.keys}, c.method);
}

struct FromShards {
  std::vector<TokenResult> results;
  std::vector<ShardPath> paths;
  CertifiedStats stats;
};

FromShards SampleOn(ShardSampler& sampler, const Case& c, const ShardSlice& slice) {
  const OwnHead own(c, slice.first_id, slice.tokens);
  const Batch hidden(c.hidden, c.dtype);
  const CertifiedHead head = own.Certified(c.kind);
  FromShards answer{
      std::vector<TokenResult>(c.hidden.size()), std::vector<ShardPath>(c.hidden.size()), {}};
  answer.stats = sampler.Sample(head, {Matrix(hidden), own.bitmask()}, c.params, c.keys, {},
                                c.method, answer.results, {}, answer.paths);
  return answer;
}

std::string Difference(const std::vector<TokenResult>& actual,
                       const std::vector<TokenResult>& expected) {
  const auto same = SameSequence(actual, expected);
  return same ? "" : same.message();
}

void ExpectEqualToTheWholeHead(int32_t ranks, uint64_t seed, const std::vector<Case>& cases) {
  std::vector<std::vector<TokenResult>> expected;
  for (const Case& c : cases) expected.push_back(OfTheWholeHead(c));
  ExpectAllWell(AnswersOfGroup(ranks, [&](ShardGroup& group) -> std::string {
    Random random(seed);  // the same on all ranks
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<ShardSlice> slices = FilledSlices(cases[i].vocab(), ranks, random);
      const auto candidates = static_cast<int32_t>(random.Coin() ? random.Between(1, 12) : 64);
      const ShardSlice& slice = slices[static_cast<size_t>(group.rank())];
      ShardSampler sampler(group, slice, candidates);
      const std::string difference =
          Difference(SampleOn(sampler, cases[i], slice).results, expected[i]);
      if (!difference.empty()) return "case " + std::to_string(i) + ": " + difference;
    }
    return "";
  }));
}

Case RandomCase(HeadKind head, int i, Random& random) {
  Case c;
  const int64_t vocab = random.Between(8, i % 3 == 0 ? 1500 : 200);
  const int64_t dim = random.Between(8, 200);
  c.weights = Representable(MakeHead(head, vocab, dim, random), DType::kF16);
  c.bias = MakeBias(vocab, random);
  c.dtype = kAllDTypes[i % 3];
  c.kind = kCertificateKinds[i % 2];
  for (const HiddenKind kind : kAllHiddenKinds) {
    c.hidden.push_back(MakeHidden(kind, c.weights, random));
    SelectParams params = RandomSwitchedParams(vocab, random);
    if (random.Coin()) params = {.temperature = random.Coin() ? 1.0f : 0.3f};
    c.params.push_back(params);
    c.keys.push_back(RandomKey(random));
  }
  if (random.Coin(0.2)) c.hidden[random.Below(c.hidden.size())][3] = std::nanf("");
  if (random.Coin()) c.bitmask = RandomBitmask(c.hidden.size(), vocab, random);
  c.method = random.Coin(0.3) ? DrawMethod::kCdf : DrawMethod::kGumbel;
  return c;
}

class HeadRanks : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, HeadRanks, ::testing::Values(1, 2, 3));

TEST_P(HeadRanks, EqualTheWholeHeadForRandomHeadsAndParameters) {
  Random random(1);
  std::vector<Case> cases;
  for (const HeadKind kind : kAllHeadKinds) {
    for (int i = 0; i < Rounds(12); ++i) cases.push_back(RandomCase(kind, i, random));
  }
  ExpectEqualToTheWholeHead(GetParam(), 21, cases);
}

// ------------------------------------------------------------------------------------------------

Case UsualCase(const std::vector<SelectParams>& params) {
  Random random(2);
  Case c;
  c.kind = CertificateKind::kStrict;  // so small a head has wide intervals in four bits
  c.weights = MakeHead(HeadKind::kNormal, 6000, 256, random);
  for (size_t r = 0; r < params.size(); ++r) {
    c.hidden.push_back(MakeHidden(HiddenKind::kPeaked, c.weights, random));
    for (float& x : c.hidden.back()) x *= 4.0f;
    c.keys.push_back(RandomKey(random));
  }
  c.params = params;
  return c;
}

struct Promise {
  const char* name;
  SelectParams params;
  ShardPath way;
  int64_t exchanges;
  bool is_dense;
};

TEST(ShardHead, ReadsTheDenseHeadOnlyWherePlanesDoNotDecide) {
  const std::vector<Promise> promises = {
      {"greedy", {.temperature = 0.0f}, ShardPath::kCandidates, 1, false},
      {"top-k", {.top_k = 50}, ShardPath::kCandidates, 1, false},
      {"top-k and top-p", {.top_k = 50, .top_p = 0.9f}, ShardPath::kCandidates, 1, false},
      {"min-p", {.min_p = 0.1f}, ShardPath::kCandidates, 1, false},
      {"softmax", {}, ShardPath::kSums, 2, false},
      {"top-p", {.top_p = 0.5f}, ShardPath::kCandidates, 2, true},
      {"a large k", {.top_k = 100}, ShardPath::kGathered, 2, true},
  };
  for (const Promise& promise : promises) {
    const Case c = UsualCase({promise.params});
    const auto expected = OfTheWholeHead(c);
    ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
      const ShardSlice slice{6000, group.rank() * 3000, 3000};
      ShardSampler sampler(group, slice, 64);
      const int64_t before = sampler.traffic().exchanges;
      const FromShards answer = SampleOn(sampler, c, slice);
      std::ostringstream text;
      text << Difference(answer.results, expected);
      const int64_t exchanges = sampler.traffic().exchanges - before;
      if (exchanges != promise.exchanges) text << " exchanges " << exchanges;
      if (answer.paths[0] != promise.way) text << " way " << static_cast<int>(answer.paths[0]);
      if ((answer.stats.dense_rows > 0) != promise.is_dense) {
        text << " dense rows " << answer.stats.dense_rows;
      }
      if (!promise.is_dense && answer.stats.bytes_read * 3 > answer.stats.dense_bytes * 2) {
        text << " read " << answer.stats.bytes_read << " of " << answer.stats.dense_bytes;
      }
      return text.str().empty() ? "" : std::string(promise.name) + ": " + text.str();
    }));
  }
}

// Draws of one hidden state: the noise of a rank's tokens is that of their global ids.
TEST(ShardHead, DrawsFromEverythingAsTheWholeHeadDoes) {
  Case c = UsualCase(std::vector<SelectParams>(64, SelectParams{.temperature = 1.5f}));
  for (auto& hidden : c.hidden) hidden = c.hidden[0];
  const auto expected = OfTheWholeHead(c);
  const bool is_on_both = std::any_of(expected.begin(), expected.end(),
                                      [](const TokenResult& r) { return r.id < 2500; }) &&
                          std::any_of(expected.begin(), expected.end(),
                                      [](const TokenResult& r) { return r.id >= 2500; });
  ASSERT_TRUE(is_on_both);
  ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) {
    const ShardSlice slice =
        group.rank() == 0 ? ShardSlice{6000, 0, 2500} : ShardSlice{6000, 2500, 3500};
    ShardSampler sampler(group, slice);
    return Difference(SampleOn(sampler, c, slice).results, expected);
  }));
}

TEST(ShardHead, RefusesAHeadOfAnotherNumberOfRows) {
  const Case c = UsualCase({{}});
  ExpectAllWell(AnswersOfGroup(1, [&](ShardGroup& group) -> std::string {
    ShardSampler sampler(group, {6000, 0, 6000});
    try {
      SampleOn(sampler, c, {6000, 0, 5999});
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.starts_with("head.weight.rows = 5999 is not allowed") ? "" : text;
    }
    return "no error";
  }));
}

TEST(ShardHead, RefusesOnAllRanksWhereOneSamplesLogits) {
  const Case c = UsualCase({{.top_k = 5}});
  const auto answers = AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
    const ShardSlice slice{6000, group.rank() * 3000, 3000};
    ShardSampler sampler(group, slice);
    if (group.rank() == 0) {
      SampleOn(sampler, c, slice);
      return "no error";
    }
    const std::vector<float> logits(3000, 1.0f);
    std::vector<TokenResult> results(1);
    sampler.Sample({{logits.data(), 1, 3000, 3000, DType::kF32, {}}, c.params, c.keys},
                   DrawMethod::kGumbel, results, {});
    return "no error";
  });
  for (const std::string& answer : answers) {
    EXPECT_EQ(answer,
              "call = exchange 1 of Sample on rank 1 is not allowed: exchange 1 of Sample of "
              "hidden states, as on rank 0");
  }
}

}  // namespace
}  // namespace sluice::test
