// The algorithms of selection by their names: an algorithm changes the time, never the answer. Each
// is compared with the definition, bit for bit, and has a loop and a bound of its own.
#include "sluice/research/algorithms.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "tests/select/everything.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

using research::Algorithm;
using research::AlgorithmEntry;

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Worked {
  Selection selection;
  std::vector<SelectWork> work;
};

// Selects twice, as Selected() does: the Cuts of the way without masses must be those of the other.
Worked SelectedBy(Algorithm algorithm, const SelectInput& input, Backend backend) {
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend}));
  const size_t rows = static_cast<size_t>(input.logits.rows);
  Worked worked{{std::vector<Cut>(rows), std::vector<CutMass>(rows)},
                std::vector<SelectWork>(rows)};
  const Execution execution{.backend = backend, .workspace = workspace.span(), .work = worked.work};
  std::vector<Cut> cuts(rows);
  research::Select(input, algorithm, cuts, worked.selection.masses, execution);
  research::Select(input, algorithm, worked.selection.cuts, {}, execution);
  EXPECT_TRUE(SameSequence(cuts, worked.selection.cuts)) << "asking for masses changed a Cut";
  return worked;
}

std::vector<int32_t> TokensBy(Algorithm algorithm, SelectInput input, Backend backend) {
  const NoiseKey key{.seed = 7, .position = 3};
  if (input.keys.empty()) input.keys = {&key, 1};
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend}));
  std::vector<TokenResult> results(static_cast<size_t>(input.logits.rows));
  research::Sample(input, DrawMethod::kGumbel, algorithm, results,
                   {.backend = backend, .workspace = workspace.span()});
  std::vector<int32_t> ids;
  for (const TokenResult& result : results) ids.push_back(result.id);
  return ids;
}

void ExpectEachGivesTheDefinition(const SelectInput& input, Backend backend) {
  const Selection expected = Selected(input, Backend::kRef);
  const std::vector<int32_t> tokens = TokensBy(Algorithm::kAuto, input, Backend::kRef);
  for (const AlgorithmEntry& info : research::Algorithms()) {
    const Selection actual = SelectedBy(info.algorithm, input, backend).selection;
    EXPECT_TRUE(SameSequence(actual.cuts, expected.cuts)) << info.name;
    EXPECT_TRUE(SameSequence(actual.masses, expected.masses)) << info.name;
    EXPECT_EQ(TokensBy(info.algorithm, input, backend), tokens) << info.name;
  }
}

// Every combination of the switches that selection looks at.
std::vector<Profile> AllProfiles() {
  std::vector<Profile> profiles;
  for (unsigned bits = 0; bits < 32; ++bits) {
    profiles.push_back({.ties = static_cast<Ties>(bits & 1u),
                        .top_k_top_p = static_cast<TopKTopP>(bits >> 1 & 1u),
                        .min_p_stage = static_cast<MinPStage>(bits >> 2 & 1u),
                        .top_p_boundary = static_cast<TopPBoundary>(bits >> 3 & 1u),
                        .temperature_stage = static_cast<TemperatureStage>(bits >> 4 & 1u)});
  }
  return profiles;
}

class Algorithms : public BackendTest {};

TEST_P(Algorithms, GiveTheDefinitionOnHostileRows) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  const NoiseKey key{11, 12, 0};
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    const Batch batch({hostile.values}, dtype());
    for (const SelectParams& params : ExtremeSelectParams()) {
      ExpectEachGivesTheDefinition({batch.view(), {&params, 1}, {&key, 1}}, backend());
    }
  }
}

// Values that are taken out with a whole scan each, and then ones that each hold more than half of
// what is left: a loop that may only read so much stops after a step of either kind.
TEST_P(Algorithms, GiveTheDefinitionWhereALoopGivesUp) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  for (int slow = 16; slow < 40; ++slow) {
    std::vector<float> row;
    for (int i = 0; i < 34; ++i) row.push_back(-0.8125f * static_cast<float>(34 - i) - 1.0f);
    for (int i = 0; i < slow; ++i) row.push_back(-0.03125f * static_cast<float>(slow - i));
    for (int many = 0; many < 2; ++many) {
      if (many == 1) row.insert(row.begin(), 300, -30.0f);
      const Batch batch({row}, dtype());
      for (const float p : {0.99f, 0.999f, 0.9999f, 0.99999f, 0.99999994f}) {
        const SelectParams params{.top_p = p};
        ExpectEachGivesTheDefinition({batch.view(), {&params, 1}}, backend());
      }
    }
  }
}

// typical drops the likeliest token and keeps the many that tie behind it; of those, min-p at the
// end keeps one though none is likely enough, and XTC drops all but the last.
TEST_P(Algorithms, GiveTheDefinitionWhereTypicalDropsTheTop) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  std::vector<float> row(70, -2.0f);
  row[40] = 0.0f;
  for (size_t i = 0; i < row.size(); i += 9) row[i] = -6.0f;
  const Batch batch({row}, dtype());
  const NoiseKey key{15, 16, 0};
  const Profile last{.min_p_stage = MinPStage::kLast};
  const SelectParams mixes[] = {
      {.min_p = 0.5f, .typical_p = 0.5f, .profile = last},
      {.top_k = 7, .min_p = 0.5f, .typical_p = 0.5f, .profile = last},
      {.typical_p = 0.5f, .xtc_probability = 1.0f, .xtc_threshold = 0.01f},
      {.top_k = 7, .typical_p = 0.5f, .xtc_probability = 1.0f, .xtc_threshold = 0.01f},
      {.top_p = 0.5f, .typical_p = 0.99f, .xtc_probability = 1.0f, .xtc_threshold = 0.01f},
  };
  for (const SelectParams& params : mixes) {
    const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
    EXPECT_LT(Selected(input, Backend::kRef).cuts[0].upper, 0.0f);
    ExpectEachGivesTheDefinition(input, backend());
  }
}

// Everything at once, under every switch: ties at each boundary, weights of 0, both signs of zero.
TEST_P(Algorithms, GiveTheDefinitionUnderEverySwitch) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  const std::vector<Profile> profiles = AllProfiles();
  const SelectParams mixes[] = {
      {.top_k = 20, .top_p = 0.9f},
      {.top_k = 3, .top_p = 0.99f, .min_p = 0.02f},
      {.temperature = 0.7f, .top_k = 40, .top_p = 0.5f, .xtc_probability = 1.0f},
      {.temperature = 2.0f, .top_p = 0.99999994f},
      {.temperature = 0.01f, .top_p = 0.99999994f, .typical_p = 0.9f},
      {.top_k = 9, .top_p = 0.7f, .min_p = 1.0f, .typical_p = 0.3f, .xtc_probability = 1.0f},
      {.top_n_sigma = 0.7f, .typical_p = 0.8f, .xtc_probability = 1.0f, .xtc_threshold = 1e-4f},
  };
  const NoiseKey key{13, 14, 0};
  int number = 0;
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    const Batch batch({hostile.values}, dtype());
    for (const SelectParams& mix : mixes) {
      for (const Profile& profile : profiles) {
        if (!IsTried(number++)) continue;
        SelectParams params = mix;
        params.profile = profile;
        ExpectEachGivesTheDefinition({batch.view(), {&params, 1}, {&key, 1}}, backend());
      }
    }
  }
}

TEST_P(Algorithms, GiveTheDefinitionOnRandomRowsAndParameters) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  Random random(21);
  const std::vector<Profile> profiles = AllProfiles();
  for (int round = 0; round < Rounds(60); ++round) {
    SCOPED_TRACE(round);
    const int64_t vocab = random.Between(1, round % 3 == 0 ? 6000 : 200);
    std::vector<std::vector<float>> rows;
    std::vector<SelectParams> params;
    std::vector<NoiseKey> keys;
    for (const RowKind kind : kAllRowKinds) {
      rows.push_back(MakeRow(kind, vocab, random));
      params.push_back(RandomSelectParams(vocab, random));
      if (random.Coin()) params.back().profile = profiles[random.Bits() % profiles.size()];
      keys.push_back({random.Bits(), static_cast<uint32_t>(round), 0});
    }
    const Batch batch(rows, dtype());
    ExpectEachGivesTheDefinition({batch.view(), params, keys}, backend());
  }
}

// Wide rows take the paths that short ones do not: samples, several blocks of a sum, all rounds.
TEST_P(Algorithms, GiveTheDefinitionOnWideRows) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  Random random(22);
  const SelectParams params[] = {
      {.top_k = 50},
      {.top_k = 5000},
      {.top_p = 0.9f},
      {.top_p = 0.999f},
      {.top_k = 1000, .top_p = 0.95f, .min_p = 0.01f},
      {.top_p = 0.9f, .top_n_sigma = 2.0f},
      {.typical_p = 0.6f},
  };
  int number = 0;
  for (const RowKind kind : kAllRowKinds) {
    SCOPED_TRACE(Name(kind));
    const Batch batch({MakeRow(kind, 40000, random)}, dtype());
    for (const SelectParams& one : params) {
      if (!IsTried(number++)) continue;
      ExpectEachGivesTheDefinition({batch.view(), {&one, 1}}, backend());
    }
  }
}

// Masses above 2^53 with odd weights among them, and one octave with more elements than any counter
// of a part of the row may see.
TEST_P(Algorithms, GiveTheDefinitionOnAMillionTokens) {
  if (backend() == Backend::kRef || dtype() != DType::kF32) GTEST_SKIP() << "takes long";
  if (kSlowdown > 1) GTEST_SKIP() << "takes long; wide rows have the same loops";
  std::vector<float> row(1 << 20);
  for (size_t i = 0; i < row.size(); ++i) {
    const float step = static_cast<float>(i % 97);
    row[i] = i % 7 == 0 ? -27.0f - 0.01f * step : -1e-5f * step;
  }
  const Batch batch({row});
  const SelectParams params{.top_p = 0.9f};
  ExpectEachGivesTheDefinition({batch.view(), {&params, 1}}, backend());
}

// An algorithm under another's name would read what the other reads.
TEST_P(Algorithms, EachHasItsOwnLoop) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  Random random(23);
  const Batch batch({MakeRow(RowKind::kMid, 32000, random)}, dtype());
  for (const SelectParams& params :
       {SelectParams{.top_k = 50}, SelectParams{.top_p = 0.9f}, SelectParams{.typical_p = 0.9f}}) {
    std::vector<int64_t> reads;
    for (const AlgorithmEntry& info : research::Algorithms()) {
      const SelectWork work =
          SelectedBy(info.algorithm, {batch.view(), {&params, 1}}, backend()).work[0];
      if (info.algorithm <= Algorithm::kCertified) continue;
      EXPECT_EQ(research::AlgorithmThatRan(info.algorithm, work), info.algorithm) << info.name;
      EXPECT_GE(work.elements_read, 32000) << info.name;
      EXPECT_EQ(std::count(reads.begin(), reads.end(), work.elements_read), 0)
          << info.name << " reads " << work.elements_read << ", as another does";
      reads.push_back(work.elements_read);
    }
  }
}

// Made against pivots that are the median of three medians of three of nine evenly spread elements,
// as McIlroy's killer adversary does it: the nine get the largest values that are left.
std::vector<float> AgainstNinthers(size_t vocab) {
  std::vector<float> row(vocab, 0.0f);  // 0: not decided yet
  std::vector<size_t> list(vocab);
  for (size_t i = 0; i < vocab; ++i) list[i] = i;
  float next = 4.0f;
  for (int round = 0; round < 300; ++round) {
    float at[9];
    for (size_t k = 0; k < 9; ++k) {
      float& x = row[list[(list.size() - 1) * k / 8]];
      if (x == 0.0f) x = next -= 0x1p-12f;
      at[k] = x;
    }
    for (size_t k = 0; k < 9; k += 3) std::sort(at + k, at + k + 3);
    float medians[] = {at[1], at[4], at[7]};
    std::sort(medians, medians + 3);
    std::erase_if(list, [&](size_t i) { return row[i] >= medians[1]; });
  }
  for (size_t i = 0; i < vocab; ++i) {
    if (row[i] == 0.0f) row[i] = 0x1p-20f * static_cast<float>(i + 1);
  }
  return row;
}

// Rows that would be quadratic for a loop without a way out.
std::vector<HostileRow> QuadraticRows() {
  constexpr size_t kVocab = 128256;
  std::vector<float> nearly_equal(kVocab);  // all distinct, and no weight tells them apart
  for (size_t i = 0; i < kVocab; ++i) {
    nearly_equal[i] = 1.0f + 0x1p-23f * static_cast<float>((i * 50021) % kVocab);
  }
  std::vector<float> ascending = nearly_equal;
  std::sort(ascending.begin(), ascending.end());
  std::vector<float> organ_pipe(kVocab);  // medians of few are far from the median of all
  for (size_t i = 0; i < kVocab; ++i) {
    organ_pipe[i] = static_cast<float>(std::min(i, kVocab - i)) * 1e-4f;
  }
  std::vector<float> doubling(kVocab);  // distances that halve towards 0, on both sides
  for (size_t i = 0; i < kVocab; ++i) {
    const float distance =
        std::ldexp(1.0f + static_cast<float>(i) * 1e-5f, -static_cast<int>(i % 120));
    doubling[i] = i % 2 == 0 ? distance : -distance;
  }
  std::vector<float> far(kVocab, 0.0f);  // each split of the range of values parts off one
  for (size_t i = 0; i < 250; ++i) {
    far[i * 500] = std::ldexp(1.0f, static_cast<int>(i / 2) - 20) * (i % 2 == 0 ? -1.0f : -1.5f);
  }
  for (size_t i = 1; i < kVocab; i += 3) far[i] = 0x1p-23f * static_cast<float>(i);
  return {{"nearly_equal", nearly_equal},
          {"ascending", ascending},
          {"organ_pipe", organ_pipe},
          {"doubling", doubling},
          {"far", far},
          {"against_ninthers", AgainstNinthers(kVocab)}};
}

TEST_P(Algorithms, StayWithinABoundOnHostileRows) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  static const std::vector<HostileRow> rows = QuadraticRows();  // for all backends and dtypes
  int number = 0;
  for (const HostileRow& hostile : rows) {
    SCOPED_TRACE(hostile.name);
    const Batch batch({hostile.values}, dtype());
    const Workspace workspace(SelectWorkspaceBytes(batch.view(), {backend()}));
    for (const SelectParams& params :
         {SelectParams{.top_k = 128200}, SelectParams{.top_k = 77}, SelectParams{.top_p = 0.9f},
          SelectParams{.top_p = 0.01f}, SelectParams{.typical_p = 0.5f}}) {
      if (!IsTried(number++)) continue;
      const SelectInput input{batch.view(), {&params, 1}};
      Cut first;  // of kAuto; the definition takes long, and is compared with on other rows
      for (const AlgorithmEntry& info : research::Algorithms()) {
        Cut cut;
        SelectWork work;
        research::Select(input, info.algorithm, {&cut, 1}, {},
                         {.backend = backend(), .workspace = workspace.span(), .work = {&work, 1}});
        if (info.algorithm == Algorithm::kAuto) first = cut;
        EXPECT_TRUE(SameBits(cut, first)) << info.name;
        EXPECT_LE(work.elements_read, 100 * input.logits.vocab) << info.name;
      }
    }
  }
}

TEST_P(Algorithms, BatchGivesWhatItsRowsGiveAlone) {
  const Mixed mixed = MixedRows(24);
  const Batch batch(mixed.rows, dtype());
  for (const AlgorithmEntry& info : research::Algorithms()) {
    SCOPED_TRACE(info.name);
    const Worked together =
        SelectedBy(info.algorithm, {batch.view(), mixed.params, mixed.keys}, backend());
    for (size_t r = 0; r < mixed.rows.size(); ++r) {
      const Worked alone = SelectedBy(
          info.algorithm,
          {batch.row(static_cast<int64_t>(r)), {&mixed.params[r], 1}, {&mixed.keys[r], 1}},
          backend());
      EXPECT_TRUE(SameBits(together.selection.cuts[r], alone.selection.cuts[0])) << "row " << r;
      EXPECT_EQ(together.selection.masses[r], alone.selection.masses[0]) << "row " << r;
      EXPECT_EQ(together.work[r].elements_read, alone.work[0].elements_read) << "row " << r;
    }
  }
}

// The same values at every distance between rows, none of them aligned to a vector.
TEST_P(Algorithms, StrideChangesNothing) {
  if (backend() == Backend::kRef) GTEST_SKIP() << "the definition has one way only";
  const Mixed mixed = MixedRows(25);
  for (const int64_t padding : {0, 1, 5, 64}) {
    const Batch batch(mixed.rows, dtype(), padding);
    ExpectEachGivesTheDefinition({batch.view(), mixed.params, mixed.keys}, backend());
  }
}

TEST_P(Algorithms, DrawTheSameTokens) {
  const Mixed mixed = MixedRows(26);
  const Batch batch(mixed.rows, dtype());
  const SelectInput input{batch.view(), mixed.params, mixed.keys};
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {backend()}));
  for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
    const std::vector<TokenResult> expected = Sampled(input, method, Backend::kRef);
    for (const AlgorithmEntry& info : research::Algorithms()) {
      std::vector<TokenResult> results(mixed.rows.size());
      std::vector<SelectWork> work(mixed.rows.size());
      research::Sample(input, method, info.algorithm, results,
                       {.backend = backend(), .workspace = workspace.span(), .work = work});
      EXPECT_TRUE(SameSequence(results, expected)) << info.name;
      const bool has_loop = info.algorithm > Algorithm::kCertified;
      if (has_loop && backend() != Backend::kRef) {
        EXPECT_GT(work[0].elements_read, 0) << info.name;
      }
    }
  }
}

SLUICE_FOR_EACH_BACKEND(Algorithms);

constexpr const char* kNames =
    "auto, certified, sort, filter_sort, filter_scan, quick_find_max, histogram, quickselect, "
    "radix, pivot";

TEST(AlgorithmNames, LeadToTheAlgorithmAndBack) {
  for (const AlgorithmEntry& info : research::Algorithms()) {
    EXPECT_EQ(research::AlgorithmByName(info.name), info.algorithm);
    EXPECT_EQ(&info - research::Algorithms().data(), static_cast<int>(info.algorithm));
    EXPECT_FALSE(info.when_to_use.empty());
  }
  ExpectError([] { research::AlgorithmByName("bogosort"); }, "algorithm", "\"bogosort\"", kNames);
}

TEST(AlgorithmNames, OutOfRangeAndWorkOfAnotherSizeAreErrors) {
  const float row[] = {1.0f, 2.0f, -kInf};
  const LogitsView logits{row, 1, 3, 3};
  const SelectParams params;
  const NoiseKey key;
  const SelectInput input{logits, {&params, 1}, {&key, 1}};
  const Workspace workspace(SelectWorkspaceBytes(logits, {}));
  Cut cut;
  TokenResult result;
  std::vector<SelectWork> work(2);
  const Execution execution{.workspace = workspace.span()};
  Execution too_many = execution;
  too_many.work = work;
  auto select = [&](Algorithm algorithm, const Execution& with) {
    research::Select(input, algorithm, {&cut, 1}, {}, with);
  };
  auto sample = [&](Algorithm algorithm, const Execution& with) {
    research::Sample(input, DrawMethod::kGumbel, algorithm, {&result, 1}, with);
  };
  const auto unknown = static_cast<Algorithm>(10);
  ExpectError([&] { select(unknown, execution); }, "algorithm", "10", kNames);
  ExpectError([&] { sample(unknown, execution); }, "algorithm", "10", kNames);
  for (const Algorithm algorithm : {Algorithm::kPivot, Algorithm::kRadix}) {
    ExpectError([&] { select(algorithm, too_many); }, "execution.work.size()", "2", "1");
    ExpectError([&] { sample(algorithm, too_many); }, "execution.work.size()", "2", "1");
  }
}

}  // namespace
}  // namespace sluice::test
