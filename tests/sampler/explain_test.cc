// Explain tells what Select and the Sampler did, and its numbers say why.
#include "sluice/explain.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/sampler/stepping.h"
#include "tests/support/bad_input.h"
#include "tests/support/batch.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

std::vector<int32_t> AllIds(int64_t vocab) {
  std::vector<int32_t> ids(static_cast<size_t>(vocab));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

SamplingParams FromSelect(const SelectParams& select) {
  SamplingParams params;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) params.name = select.name;
#include "sluice/params.def"
  params.profile = select.profile;
  return params;
}

constexpr int kFirstFilter = static_cast<int>(Stage::kGreedy);

// The filter behind which a token is missing, by the trace of the definition.
std::optional<Stage> DroppedBy(const semantics::SelectedRow& selected, int32_t id) {
  for (int f = 0; f < semantics::kFilters; ++f) {
    bool is_left = false;
    const semantics::Interval after = selected.trace.after[f];
    for (int64_t i = after.begin; i < after.end; ++i) {
      is_left = is_left || selected.sorted.tokens[i].id == id;
    }
    if (!is_left) return static_cast<Stage>(kFirstFilter + f);
  }
  return std::nullopt;
}

// Behind every filter that is on, the numbers decide what the filter decided.
void ExpectNumbersDecide(const Explanation& e) {
  bool is_there = std::isfinite(e.adjusted);
  for (int s = kFirstFilter; s <= static_cast<int>(Stage::kXtc); ++s) {
    const StageReport& report = e.stages[static_cast<size_t>(s)];
    SCOPED_TRACE(Name(static_cast<Stage>(s)));
    const bool compares = report.is_on && is_there;
    EXPECT_EQ(report.comparison != Comparison::kNone, compares);
    EXPECT_EQ(std::isnan(report.quantity), !compares);
    if (compares) {
      EXPECT_EQ(report.is_left,
                Holds(report.comparison, report.quantity, report.limit) || report.is_exempt)
          << report.quantity << " against " << report.limit;
    }
    EXPECT_TRUE(is_there || !report.is_left);
    is_there = report.is_left;
  }
  EXPECT_EQ(is_there, e.is_kept);
}

// Every token of the row against the definition, and the drawn one against Sample.
void ExpectAgrees(const LogitsView& row, const SelectParams& select, const NoiseKey& key,
                  DrawMethod method) {
  ExplainInput input{.logits = row, .params = FromSelect(select), .key = key};
  input.params.draw_method = method;
  const std::vector<int32_t> ids = AllIds(row.vocab);
  const std::vector<Explanation> explanations = Explain(input, ids);

  std::vector<semantics::Token> workspace(ids.size());
  const semantics::Row reference{row.data, row.dtype, row.vocab};
  const auto selected = semantics::SelectRow(reference, select, key, {}, workspace.data());
  const TokenResult sampled = Sampled({row, {&select, 1}, {&key, 1}}, method).front();
  semantics::CutWalk walk(sampled.cut);
  for (const Explanation& e : explanations) {
    SCOPED_TRACE(e.id);
    const float x = reference[e.id];
    EXPECT_EQ(e.status, sampled.status);
    EXPECT_EQ(e.cut, sampled.cut);
    EXPECT_EQ(e.drawn_id, sampled.id);
    EXPECT_EQ(e.is_drawn, e.id == sampled.id);
    EXPECT_FALSE(Sentence(e).empty());
    if (e.status != RowStatus::kOk) {
      EXPECT_FALSE(e.is_kept || e.dropped_by.has_value());
      continue;
    }
    EXPECT_EQ(e.is_kept, walk.Keeps(x));
    EXPECT_EQ(e.dropped_by,
              x == -INFINITY ? std::optional(Stage::kLogits) : DroppedBy(selected, e.id));
    ExpectNumbersDecide(e);
    for (int f = 0; f < semantics::kFilters; ++f) {
      const semantics::Interval after = selected.trace.after[f];
      EXPECT_EQ(e.stages[static_cast<size_t>(kFirstFilter + f)].tokens_left,
                after.end - after.begin);
    }
    const StageReport& draw = e[Stage::kDraw];
    if (e.is_drawn) {
      EXPECT_TRUE(Holds(draw.comparison, draw.quantity, draw.limit));
    }
  }
}

TEST(Explain, AgreesWithSelectAndSampleOnRandomRows) {
  Random random(1);
  for (int round = 0; round < 400; ++round) {
    const int64_t vocab = random.Between(1, 90);
    const Batch batch({MakeRow(kAllRowKinds[random.Below(8)], vocab, random)},
                      kAllDTypes[random.Below(3)]);
    const NoiseKey key{random.Bits(), static_cast<uint32_t>(random.Below(100)), 0,
                       random.Coin() ? DrawStream::kTarget : DrawStream::kDraft};
    SCOPED_TRACE(round);
    ExpectAgrees(batch.view(), RandomSelectParams(vocab, random), key,
                 random.Coin() ? DrawMethod::kGumbel : DrawMethod::kCdf);
    if (HasFailure()) return;
  }
}

TEST(Explain, AgreesWithSelectOnHostileRowsUnderEveryProfile) {
  for (const HostileRow& row : HostileRows()) {
    for (const NamedProfile& named : kProfiles) {
      for (SelectParams params : ExtremeSelectParams()) {
        params.profile = named.profile;
        SCOPED_TRACE(std::string(row.name) + ", " + std::string(named.name));
        ExpectAgrees(Batch({row.values}).view(), params, {3, 5}, DrawMethod::kGumbel);
        if (HasFailure()) return;
      }
    }
  }
}

// Rows whose values lie one unit of the rules' fixed point apart, so that some token misses or
// makes every limit by a single unit.
TEST(Explain, AgreesWhereOneUnitDecides) {
  Random random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row;
    for (int64_t n = random.Between(2, 12); n > 0; --n) {
      row.push_back(static_cast<float>(-random.Below(6)) * 0x1p-12f);
    }
    SelectParams params{.temperature = random.Coin() ? 1.0f : 0.7213475f};
    params.profile = kProfiles[random.Below(std::size(kProfiles))].profile;
    if (random.Coin()) params.top_n_sigma = static_cast<float>(random.Between(1, 16)) * 0.125f;
    if (random.Coin()) params.typical_p = static_cast<float>(random.Between(1, 7)) * 0.125f;
    const auto equal_parts =
        static_cast<float>(random.Between(1, 3)) / static_cast<float>(row.size());
    if (random.Coin()) params.top_p = std::min(equal_parts, 1.0f);
    SCOPED_TRACE(round);
    ExpectAgrees(Batch({row}).view(), params, {1, 2}, DrawMethod::kGumbel);
    if (HasFailure()) return;
  }
}

TEST(Explain, SharesThatRoundToTheSameDoubleStandOnTheirSides) {
  // 2^14 weights of 2^40 and one of 1: half of the mass is 2^53 + 1 in whole units, and 2^53 of it
  // lies before token 2^13, which therefore stays. As doubles the two shares are equal.
  std::vector<float> row(1 << 14, 0.0f);
  row.push_back(-27.6f);
  const Batch batch({row});
  for (const int32_t id : {(1 << 13) - 1, 1 << 13, (1 << 13) + 1}) {
    const Explanation e = Explain({.logits = batch.view(), .params = {.top_p = 0.5f}}, id);
    EXPECT_EQ(e.is_kept, id <= 1 << 13);
    ExpectNumbersDecide(e);
    EXPECT_FALSE(e[Stage::kTopP].is_exempt);
  }
}

TEST(Explain, AgreesWithTheSamplerOnEveryAdjustment) {
  Random random(2);
  for (int round = 0; round < 300; ++round) {
    const int64_t vocab = random.Between(4, 70);
    LiteralRequest request = RandomLiteralRequest(vocab, random);
    Sampler sampler({.vocab = vocab, .backend = Backend::kRef});
    const RequestHandle handle = AddTo(sampler, request);
    for (int64_t n = random.Below(6); n > 0; --n) {
      request.output.push_back(static_cast<int32_t>(random.Below(vocab)));
    }
    sampler.Accept(handle, request.output);
    const auto tokens = sampler.Tokens(handle);
    const std::vector<int32_t> history(tokens.begin(), tokens.end());
    const std::vector<int32_t> bitmask =
        random.Coin(0.4) ? RandomBitmask(vocab, 1, random) : std::vector<int32_t>{};
    const int32_t forced = random.Coin(0.1) ? static_cast<int32_t>(random.Below(vocab)) : -1;
    const Batch batch({MakeRow(kAllRowKinds[random.Below(8)], vocab, random)});

    const std::vector<Explanation> explanations = Explain({.logits = batch.view(),
                                                           .params = request.params,
                                                           .key = request.Key(),
                                                           .tokens = history,
                                                           .prompt_length = request.prompt.size(),
                                                           .bitmask = bitmask,
                                                           .forced = forced},
                                                          AllIds(vocab));
    const StepRequest row{.request = handle, .bitmask = bitmask, .forced = forced};
    const Stepped stepped = StepAll(sampler, batch.view(), {&row, 1}, vocab + 1);
    for (const Explanation& e : explanations) {
      SCOPED_TRACE(e.id);
      const auto id = static_cast<size_t>(e.id);
      EXPECT_EQ(semantics::BitsOf(e.adjusted), semantics::BitsOf(stepped.adjusted[id]));
      EXPECT_EQ(e.drawn_id, stepped.tokens[0].id);
      EXPECT_EQ(e.cut, stepped.tokens[0].cut);
      EXPECT_EQ(e.is_kept, (static_cast<uint32_t>(stepped.kept[id / 32]) >> (id % 32) & 1u) != 0);
      ExpectNumbersDecide(e);
      // A stage's value behind it is the next one's in front of it; who masked the token had it.
      for (size_t s = 1; s <= static_cast<size_t>(Stage::kForced); ++s) {
        EXPECT_EQ(semantics::BitsOf(e.stages[s].before), semantics::BitsOf(e.stages[s - 1].after));
      }
      if (e.status == RowStatus::kOk && e.adjusted == -INFINITY) {
        const StageReport& masking = e[e.dropped_by.value()];
        EXPECT_TRUE(masking.is_on);
        EXPECT_TRUE(masking.before != -INFINITY || *e.dropped_by == Stage::kLogits);
      }
    }
    if (HasFailure()) return;
  }
}

struct Boundary {
  Stage stage;
  SelectParams params;
  int32_t last_kept;     // ids are places: the row descends
  double kept_quantity;  // of the last kept token
  double drop_quantity;  // of the first dropped one
  double limit;
};

// log2 of the weights 8, 4, 2, 1, 1 in natural logarithms: at T = 1 the shares are 1/2, 1/4, ...
std::vector<float> HalvingRow() {
  const float ln2 = 0.693147181f;
  return {3 * ln2, 2 * ln2, ln2, 0, 0};
}

TEST(Explain, NumbersOfTheLastKeptAndTheFirstDroppedTokenStandOnTheirSides) {
  const Profile hf = ProfileByName("hf");
  const Profile inclusive = ProfileByName("tensorrt-llm");
  const Boundary boundaries[] = {
      {Stage::kGreedy, {.temperature = 0.0f}, 0, 1, 2, 1},
      {Stage::kMinP, {.min_p = 0.25f}, 2, 0.25, 0.125, 0.25},
      {Stage::kMinPLast, {.min_p = 0.25f, .profile = hf}, 2, 0.25, 0.125, 0.25},
      {Stage::kTopK, {.top_k = 2}, 1, 2, 3, 2},
      {Stage::kTopK, {.top_k = 3, .profile = hf}, 2, 3, 4, 3},
      {Stage::kTopP, {.top_p = 0.75f}, 1, 0.5, 0.75, 0.75},
      {Stage::kTopP, {.top_p = 0.75f, .profile = inclusive}, 2, 0.75, 0.875, 0.75},
      {Stage::kTopP, {.top_p = 0.8f}, 2, 0.75, 0.875, 0.8},
      {Stage::kTopNSigma, {.top_n_sigma = 0.5f}, 0, 0, 0.8575, 0.5},
  };
  for (const Boundary& b : boundaries) {
    SCOPED_TRACE(std::string(Name(b.stage)) + " keeps up to " + std::to_string(b.last_kept));
    const Batch batch({HalvingRow()});
    const ExplainInput input{.logits = batch.view(), .params = FromSelect(b.params)};
    const Explanation kept = Explain(input, b.last_kept);
    const Explanation dropped = Explain(input, b.last_kept + 1);
    EXPECT_TRUE(kept.is_kept);
    EXPECT_EQ(dropped.dropped_by, b.stage);
    // Halves and their logarithms by fp32 weights: the values are written here in round numbers.
    EXPECT_NEAR(kept[b.stage].quantity, b.kept_quantity, 1e-3);
    EXPECT_NEAR(dropped[b.stage].quantity, b.drop_quantity, 1e-3);
    EXPECT_NEAR(dropped[b.stage].limit, b.limit, 1e-6);
    EXPECT_TRUE(Holds(kept[b.stage].comparison, kept[b.stage].quantity, kept[b.stage].limit));
    EXPECT_FALSE(
        Holds(dropped[b.stage].comparison, dropped[b.stage].quantity, dropped[b.stage].limit));
  }
}

TEST(Explain, TypicalMeasuresTheDistanceFromTheMeanSurprise) {
  const Batch batch({HalvingRow()});
  ExplainInput input{.logits = batch.view(), .params = {.typical_p = 0.2f}};
  // Surprises relative to the first are 0, 1, 2, 3, 3 bits, and their mean is 0.875.
  const Explanation first = Explain(input, 0);
  EXPECT_TRUE(Explain(input, 1).is_kept);
  EXPECT_EQ(first.dropped_by, Stage::kTypical);
  // Surprise is counted in steps of 2^-12 bits.
  EXPECT_NEAR(first[Stage::kTypical].quantity, 0.875, 1e-3);
  EXPECT_NEAR(first[Stage::kTypical].limit, 0.125, 1e-3);
}

TEST(Explain, XtcDropsAllButTheLastAboveItsThreshold) {
  const Batch batch({HalvingRow()});
  ExplainInput input{.logits = batch.view(),
                     .params = {.xtc_probability = 1.0f, .xtc_threshold = 0.2f}};
  const Explanation first = Explain(input, 0);
  EXPECT_EQ(first.dropped_by, Stage::kXtc);
  // The weights round: half is not exactly half.
  EXPECT_NEAR(first[Stage::kXtc].quantity, 0.5, 1e-6);
  const Explanation last_above = Explain(input, 1);
  EXPECT_TRUE(last_above.is_kept && last_above[Stage::kXtc].is_exempt);
  EXPECT_TRUE(last_above.xtc_coin_fell);
  EXPECT_FALSE(Explain(input, 2)[Stage::kXtc].is_exempt);

  input.params.xtc_probability = 1e-9f;
  EXPECT_FALSE(Explain(input, 0).xtc_coin_fell);
  EXPECT_TRUE(Explain(input, 0).is_kept);
}

// A place, a length or a number of tokens has all its digits, however large the vocabulary is.
TEST(Explain, SentencesCountInWholeNumbers) {
  constexpr int64_t kVocab = 262144;
  std::vector<float> row(kVocab);
  for (size_t i = 0; i < row.size(); ++i) row[i] = -static_cast<float>(i) / 64;
  const LogitsView logits{.data = row.data(), .rows = 1, .vocab = kVocab, .stride = kVocab};
  const auto sentence = [&](const SamplingParams& params, int32_t id,
                            const std::vector<int32_t>& tokens = {}) {
    return Sentence(Explain({.logits = logits, .params = params, .tokens = tokens}, id));
  };
  EXPECT_EQ(sentence({.top_k = 50}, 46197),
            "top-k dropped it: it is number 46198, the first 50 are kept");
  EXPECT_EQ(sentence({.top_k = 200000}, 262143),
            "top-k dropped it: it is number 262144, the first 200000 are kept");
  EXPECT_EQ(sentence({.temperature = 0}, 262143),
            "greedy dropped it: it is number 262144 in the row, and temperature 0 keeps the first");
  EXPECT_EQ(
      sentence({.min_tokens = 123456, .stop_token_ids = {7}}, 7, std::vector<int32_t>(1234, 1)),
      "min-tokens masked it: 1234 tokens were generated, a stop token comes after 123456 at "
      "the earliest");
  EXPECT_EQ(sentence({.top_p = 0.9f}, 262143),
            "top-p dropped it: 1 of the mass lies before it, 0.9 is kept");
}

TEST(Explain, SentencesSayWhichStageAndByHowMuch) {
  const std::vector<float> row = HalvingRow();
  const Batch batch({row});
  auto sentence = [&](const SamplingParams& params, int32_t id) {
    return Sentence(Explain({.logits = batch.view(), .params = params}, id));
  };
  EXPECT_EQ(sentence({.top_p = 0.7f}, 2),
            "top-p dropped it: 0.75 of the mass lies before it, 0.7 is kept");
  EXPECT_EQ(sentence({.top_k = 2}, 4), "top-k dropped it: it is number 5, the first 2 are kept");
  EXPECT_EQ(sentence({.min_p = 0.3f}, 2),
            "min-p dropped it: it is 0.25 times as likely as the most likely token, at least 0.3 "
            "is kept");
  EXPECT_EQ(sentence({.temperature = 0.0f}, 3),
            "greedy dropped it: it is number 4 in the row, and temperature 0 keeps the first");
  EXPECT_EQ(sentence({.temperature = 0.0f}, 0),
            "it was drawn: temperature 0 takes the first token of the row");
  EXPECT_EQ(sentence({.allowed_token_ids = {{1}}}, 3),
            "allowed ids masked it: it is not among them");
  EXPECT_EQ(sentence({.min_tokens = 2, .stop_token_ids = {3}}, 3),
            "min-tokens masked it: 0 tokens were generated, a stop token comes after 2 at the "
            "earliest");
  EXPECT_EQ(sentence({.bad_words = {{3}}}, 3), "bad words masked it: it would complete one");
  EXPECT_EQ(sentence({.top_k = 1}, 0).substr(0, 26), "it was drawn: its score of");
}

TEST(Explain, ARowWithAStatusKeepsNothing) {
  const Batch batch({{1, NAN, 2}});
  const Explanation e = Explain({.logits = batch.view()}, 0);
  EXPECT_EQ(e.status, RowStatus::kNanInput);
  EXPECT_FALSE(e.is_kept || e.is_drawn || e.dropped_by.has_value());
  EXPECT_EQ(Sentence(e), "no token is kept or drawn: the row's status is nan_input");
}

TEST(Explain, ProcessorsRunBetweenDryAndAForcedToken) {
  const Batch batch({{1, 2, 3}});
  const LogitsProcessor mask{.apply = [](void*, std::span<const int32_t>, size_t,
                                         std::span<float> logits) { logits[2] = -INFINITY; }};
  const Explanation e = Explain({.logits = batch.view(), .processors = {&mask, 1}}, 2);
  EXPECT_EQ(e.dropped_by, Stage::kProcessors);
  const Explanation forced =
      Explain({.logits = batch.view(), .forced = 2, .processors = {&mask, 1}}, 2);
  EXPECT_TRUE(forced.is_drawn);
  EXPECT_EQ(forced.adjusted, 0.0f);
}

struct ExplainCall {
  Batch batch{{{1, 2, 3}}};
  std::vector<int32_t> tokens = {0, 1};
  std::vector<int32_t> bitmask = {7};
  LogitsProcessor processor{
      .apply = [](void*, std::span<const int32_t>, size_t, std::span<float>) {}};
  ExplainInput input{.logits = batch.view(),
                     .tokens = tokens,
                     .prompt_length = 1,
                     .bitmask = bitmask,
                     .processors = {&processor, 1}};
  int32_t id = 2;
};

TEST(Explain, RefusesWhatTheSamplerWouldRefuse) {
  using Call = ExplainCall;
  std::vector<BadCase<Call>> cases = {
      {[](Call& c) { c.id = 3; }, "id", "3", "[0, 2]"},
      {[](Call& c) { c.id = -1; }, "id", "-1", "[0, 2]"},
      {[](Call& c) { c.tokens[1] = 3; }, "tokens", "3", "[0, 2]"},
      {[](Call& c) { c.input.prompt_length = 3; }, "prompt_length", "3", "[0, 2]"},
      {[](Call& c) { c.input.bitmask = c.tokens; }, "bitmask.size()", "2", "1"},
      {[](Call& c) { c.input.forced = 3; }, "forced", "3", "[-1, 2]"},
      {[](Call& c) { c.input.forced = -2; }, "forced", "-2", "[-1, 2]"},
      {[](Call& c) { c.input.key.choice = 1 << 24; }, "choice", "16777216", "[0, 16777215]"},
      {[](Call& c) { c.input.params.top_p = 0; }, "top_p", "0", "(0, 1]"},
      {[](Call& c) { c.processor.apply = nullptr; }, "processors.apply", "null", "a function"},
      {[](Call& c) { c.input.logits.rows = 2; }, "logits.rows", "2", "1"},
      {[](Call& c) { c.input.logits.rows = 0; }, "logits.rows", "0", "1"},
      {[](Call& c) { c.input.logits.data = nullptr; }, "logits.data", "null",
       "a pointer to the rows"},
  };
  ExpectErrors(cases, [](Call& c) { Explain(c.input, c.id); });
}

}  // namespace
}  // namespace sluice::test
