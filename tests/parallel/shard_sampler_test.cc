// Processes that each have a slice of the vocabulary give what one that has all of it gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tests/parallel/ranks.h"
#include "tests/parallel/slices.h"
#include "tests/support/batch.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr LogprobMode kModes[] = {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits,
                                  LogprobMode::kProcessedLogprobs, LogprobMode::kProcessedLogits};

struct Case {
  std::vector<std::vector<float>> rows;
  DType dtype = DType::kF32;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;
  DrawMethod method = DrawMethod::kGumbel;
  LogprobMode mode = LogprobMode::kRawLogprobs;

  int64_t vocab() const { return static_cast<int64_t>(rows[0].size()); }
};

std::vector<TokenResult> OfTheWholeRows(const Case& c) {
  const Batch whole(c.rows, c.dtype);
  std::vector<TokenResult> results = Sampled({whole.view(), c.params, c.keys}, c.method);
  const Workspace workspace(SelectWorkspaceBytes(whole.view(), {Backend::kRef}));
  Logprobs({whole.view(), c.mode, c.params}, results, {}, {Backend::kRef, {}, workspace.span()});
  return results;
}

// Uneven slices of the vocabulary, some of them empty, by rank.
std::vector<ShardSlice> Slices(int64_t vocab, int32_t ranks, Random& random) {
  std::vector<int64_t> starts = {0};
  for (int32_t r = 1; r < ranks; ++r) starts.push_back(random.Between(0, vocab));
  starts.push_back(vocab);
  std::sort(starts.begin(), starts.end());
  std::vector<ShardSlice> slices;
  for (size_t r = 0; r + 1 < starts.size(); ++r) {
    slices.push_back({vocab, starts[r], starts[r + 1] - starts[r]});
  }
  return slices;
}

struct FromShards {
  std::vector<TokenResult> results;
  std::vector<ShardPath> paths;
};

FromShards SampleOn(ShardSampler& sampler, const Case& c, const ShardSlice& slice) {
  const Batch own(OwnColumns(c.rows, slice, slice.tokens == 0 ? 3 : slice.first_id % 3), c.dtype);
  FromShards answer{std::vector<TokenResult>(c.rows.size()), std::vector<ShardPath>(c.rows.size())};
  sampler.Sample({own.view(), c.params, c.keys}, c.method, answer.results, {}, answer.paths);
  sampler.Logprobs({own.view(), c.mode, c.params}, answer.results, {});
  return answer;
}

std::string Difference(const std::vector<TokenResult>& actual,
                       const std::vector<TokenResult>& expected) {
  const auto same = SameSequence(actual, expected);
  return same ? "" : same.message();
}

// All cases on a group of that many ranks, each with slices and a number of candidates of its own.
void ExpectEqualToTheWholeRows(int32_t ranks, uint64_t seed, const std::vector<Case>& cases) {
  ExpectAllWell(AnswersOfGroup(ranks, [&](ShardGroup& group) -> std::string {
    Random random(seed);  // the same on all ranks
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<ShardSlice> slices = Slices(cases[i].vocab(), ranks, random);
      const auto candidates = static_cast<int32_t>(random.Coin() ? random.Between(1, 12) : 64);
      const ShardSlice& slice = slices[static_cast<size_t>(group.rank())];
      ShardSampler sampler(group, slice, candidates);
      const std::string difference =
          Difference(SampleOn(sampler, cases[i], slice).results, OfTheWholeRows(cases[i]));
      if (!difference.empty()) return "case " + std::to_string(i) + ": " + difference;
    }
    return "";
  }));
}

Case RandomCase(RowKind kind, int i, Random& random) {
  Case c;
  const int64_t vocab = random.Between(8, i % 8 == 0 ? 512 : 128);
  c.dtype = kAllDTypes[i % 3];
  for (int r = 0; r < 4; ++r) {
    c.rows.push_back(MakeRow(kind, vocab, random));
    c.params.push_back(RandomSwitchedParams(vocab, random));
    c.keys.push_back(RandomKey(random));
  }
  c.method = random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
  c.mode = kModes[random.Below(4)];
  return c;
}

class Ranks : public ::testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(All, Ranks, ::testing::Values(1, 2, 3, 4));

TEST_P(Ranks, EqualTheWholeRowForRandomRowsAndParameters) {
  Random random(1);
  std::vector<Case> cases;
  for (const RowKind kind : kAllRowKinds) {
    for (int i = 0; i < 40; ++i) cases.push_back(RandomCase(kind, i, random));
  }
  ExpectEqualToTheWholeRows(GetParam(), 11, cases);
}

TEST_P(Ranks, EqualTheWholeRowForHostileRows) {
  Random random(2);
  std::vector<Case> cases;
  for (const HostileRow& row : HostileRows(31)) {
    Case c;
    for (const NamedProfile& profile : kProfiles) {
      for (SelectParams params : ExtremeSelectParams()) {
        params.profile = profile.profile;
        c.rows.push_back(row.values);
        c.params.push_back(params);
        c.keys.push_back(RandomKey(random));
      }
    }
    for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
      c.method = method;
      c.mode = kModes[random.Below(4)];
      c.dtype = kAllDTypes[random.Below(3)];
      cases.push_back(c);
    }
  }
  ExpectEqualToTheWholeRows(GetParam(), 12, cases);
}

TEST_P(Ranks, EqualTheWholeRowWhereEverythingTies) {
  Random random(3);
  std::vector<Case> cases;
  for (int i = 0; i < 300; ++i) {
    Case c;
    const int64_t vocab = random.Between(4, 40);
    std::vector<float> row;
    for (int64_t id = 0; id < vocab; ++id) row.push_back(random.Coin(0.2) ? 1.0f : 2.0f);
    c.rows = {row};
    c.params = {RandomSwitchedParams(vocab, random)};
    c.keys = {RandomKey(random)};
    c.method = random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf;
    cases.push_back(c);
  }
  ExpectEqualToTheWholeRows(GetParam(), 13, cases);
}

// ------------------------------------------------------------------------------------------------

struct Decided {
  const char* name;
  SelectParams params;
  RowKind kind;
  ShardPath way;
  int64_t exchanges;  // of Sample
};

TEST(ShardSampler, DecidesWithAsFewExchangesAsTheRulesAllow) {
  const std::vector<Decided> cases = {
      {"greedy", {.temperature = 0.0f}, RowKind::kFlat, ShardPath::kCandidates, 1},
      {"top-k", {.top_k = 50}, RowKind::kFlat, ShardPath::kCandidates, 1},
      {"top-k and top-p", {.top_k = 50, .top_p = 0.9f}, RowKind::kFlat, ShardPath::kCandidates, 1},
      {"top-p", {.top_p = 0.9f}, RowKind::kPeaked, ShardPath::kCandidates, 2},
      {"top-p of a wide nucleus", {.top_p = 0.9f}, RowKind::kNormal, ShardPath::kGathered, 3},
      {"min-p", {.min_p = 1e-6f}, RowKind::kNormal, ShardPath::kSums, 2},
      {"min-p of a few", {.min_p = 0.5f}, RowKind::kPeaked, ShardPath::kCandidates, 1},
      {"softmax", {}, RowKind::kNormal, ShardPath::kSums, 2},
      {"a large k", {.top_k = 100}, RowKind::kNormal, ShardPath::kGathered, 2},
      {"typical", {.typical_p = 0.5f}, RowKind::kNormal, ShardPath::kGathered, 2},
      {"a status", {.temperature = -1.0f}, RowKind::kNormal, ShardPath::kStatus, 1},
  };
  ExpectAllWell(AnswersOfGroup(3, [&](ShardGroup& group) -> std::string {
    for (const Decided& decided : cases) {
      Random random(4);
      Case c;
      c.rows = {MakeRow(decided.kind, 3000, random)};
      c.params = {decided.params};
      c.keys = {RandomKey(random)};
      const ShardSlice slice{3000, group.rank() * 1000, 1000};
      ShardSampler sampler(group, slice, 64);
      const int64_t before = sampler.traffic().exchanges;
      const FromShards answer = SampleOn(sampler, c, slice);
      const int64_t exchanges = sampler.traffic().exchanges - before - 2;  // without Logprobs
      std::ostringstream text;
      text << Difference(answer.results, OfTheWholeRows(c));
      if (answer.paths[0] != decided.way) text << " way " << static_cast<int>(answer.paths[0]);
      if (exchanges != decided.exchanges) text << " exchanges " << exchanges;
      if (sampler.traffic().rows[static_cast<int>(decided.way)] != 1) text << " not counted";
      if (!text.str().empty()) return std::string(decided.name) + ": " + text.str();
    }
    return "";
  }));
}

TEST(ShardSampler, SendsAtMostTwoKilobytesARowForFiftyTokens) {
  ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
    Random random(5);
    Case c;
    for (int r = 0; r < 8; ++r) c.rows.push_back(MakeRow(RowKind::kMid, 4000, random));
    c.params = {{.top_k = 50, .top_p = 0.9f}};
    c.keys = {RandomKey(random)};
    const ShardSlice slice{4000, group.rank() * 2000, 2000};
    ShardSampler sampler(group, slice, 50);
    const int64_t before = sampler.traffic().bytes_sent;
    const Batch own(OwnColumns(c.rows, slice, 0), c.dtype);
    std::vector<TokenResult> results(8);
    sampler.Sample({own.view(), c.params, c.keys}, c.method, results, {});
    const int64_t bytes = (sampler.traffic().bytes_sent - before) / 8;
    return bytes <= 2048 / group.ranks() ? "" : std::to_string(bytes) + " bytes a row";
  }));
}

TEST(ShardSampler, GathersLongRowsAFewAtATime) {
  Random random(8);
  constexpr int64_t kVocab = int64_t{1} << 19;  // 2 MiB a row from two ranks: eight rows at once
  Case c;
  for (int r = 0; r < 10; ++r) c.rows.push_back(MakeRow(RowKind::kNormal, kVocab, random));
  c.params = {{.top_k = 100}};
  c.keys = {RandomKey(random)};
  const Batch whole(c.rows, c.dtype);
  const auto expected = Sampled({whole.view(), c.params, c.keys}, c.method);
  ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
    const ShardSlice slice{kVocab, group.rank() * kVocab / 2, kVocab / 2};
    const Batch own(OwnColumns(c.rows, slice, 0), c.dtype);
    ShardSampler sampler(group, slice);
    std::vector<TokenResult> results(c.rows.size());
    const int64_t before = sampler.traffic().exchanges;
    sampler.Sample({own.view(), c.params, c.keys}, c.method, results, {});
    const int64_t exchanges = sampler.traffic().exchanges - before;
    if (exchanges != 3) return std::to_string(exchanges) + " exchanges";
    return Difference(results, expected);
  }));
}

#if defined(__x86_64__)
TEST(ShardSampler, IsTheSameWhereTheCallerTakesDenormalsForZero) {
  Random random(9);
  Case c;
  for (int r = 0; r < 4; ++r) c.rows.push_back(MakeRow(RowKind::kMid, 200, random));
  c.params = {{.temperature = 1e-40f, .top_k = 20}};
  c.keys = {RandomKey(random)};
  c.mode = LogprobMode::kProcessedLogprobs;
  const auto expected = OfTheWholeRows(c);
  ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) {
    const ShardSlice slice{200, group.rank() * 100, 100};
    ShardSampler sampler(group, slice);
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040);  // flush to zero, denormals are zero
    const FromShards answer = SampleOn(sampler, c, slice);
    _mm_setcsr(saved);
    return Difference(answer.results, expected);
  }));
}
#endif

TEST(ShardSampler, TakesABatchOfNoRows) {
  ExpectAllWell(AnswersOfGroup(2, [](ShardGroup& group) -> std::string {
    ShardSampler sampler(group, {8, group.rank() * 4, 4});
    const SelectParams params;
    const NoiseKey key;
    const LogitsView none{nullptr, 0, 4, 4, DType::kF32, {}};
    sampler.Sample({none, {&params, 1}, {&key, 1}}, DrawMethod::kGumbel, {}, {});
    sampler.Logprobs({none, LogprobMode::kRawLogprobs, {&params, 1}}, {}, {});
    return "";
  }));
}

TEST(ShardSampler, HasSlicesOfDTypesOfTheirOwn) {
  Random random(6);
  Case c;
  std::vector<float> row = MakeRow(RowKind::kMid, 90, random);
  // Multiples of 1/8 below 16 are exact in all three.
  for (float& x : row) x = std::clamp(std::rint(x * 8.0f) * 0.125f, -15.0f, 15.0f);
  c.rows = {row};
  c.params = {{.top_p = 0.9f}};
  c.keys = {RandomKey(random)};
  ExpectAllWell(AnswersOfGroup(3, [&](ShardGroup& group) {
    Case own = c;
    own.dtype = kAllDTypes[group.rank()];
    const ShardSlice slice{90, group.rank() * 30, 30};
    ShardSampler sampler(group, slice, 8);
    return Difference(SampleOn(sampler, own, slice).results, OfTheWholeRows(c));
  }));
}

TEST(ShardSampler, TakesTheLogitsOfAHeadThatIsSplitByRows) {
  Random random(7);
  constexpr int64_t kVocab = 300, kDim = 48;
  std::vector<std::vector<float>> weights, hidden;
  for (int64_t v = 0; v < kVocab; ++v) weights.push_back(MakeRow(RowKind::kNormal, kDim, random));
  for (int64_t r = 0; r < 5; ++r) hidden.push_back(MakeRow(RowKind::kNormal, kDim, random));
  const Batch weight(weights, DType::kBf16), states(hidden, DType::kBf16);
  auto matrix = [](const LogitsView& view) {
    return MatrixView{view.data, view.rows, view.vocab, view.stride, view.dtype, {}};
  };
  auto project = [&](int64_t first, int64_t tokens) {
    std::vector<float> logits(static_cast<size_t>(5 * tokens));
    MatrixView rows = matrix(weight.view());
    rows.data = rows.Row(first);
    rows.rows = tokens;
    const DenseHead head{rows, {}};
    const Workspace workspace(ProjectWorkspaceBytes(head, matrix(states.view()), {}));
    Project(head, matrix(states.view()), {}, {logits.data(), 5, tokens, tokens, DType::kF32, {}},
            {Backend::kAuto, {}, workspace.span()});
    return logits;
  };
  const std::vector<SelectParams> params = {{.temperature = 0.7f, .top_k = 20, .top_p = 0.9f}};
  const std::vector<NoiseKey> keys = {{42, 7, 0}};
  const std::vector<float> whole = project(0, kVocab);
  const auto expected = Sampled({{whole.data(), 5, kVocab, kVocab, DType::kF32, {}}, params, keys});
  ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) {
    const ShardSlice slice =
        group.rank() == 0 ? ShardSlice{kVocab, 0, 123} : ShardSlice{kVocab, 123, kVocab - 123};
    const std::vector<float> own = project(slice.first_id, slice.tokens);
    ShardSampler sampler(group, slice);
    std::vector<TokenResult> results(5);
    sampler.Sample({{own.data(), 5, slice.tokens, slice.tokens, DType::kF32, {}}, params, keys},
                   DrawMethod::kGumbel, results, {});
    return Difference(results, expected);
  }));
}

}  // namespace
}  // namespace sluice::test
