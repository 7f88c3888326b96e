// The whole step against the definition written out, and in every company of other requests.
#include "sluice/sampler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/sampler/stepping.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"
#include "tests/support/threads.h"

namespace sluice::test {
namespace {

class StepSampler : public BackendTest {
 protected:
  Sampler NewSampler(int64_t vocab) const {
    return Sampler({.vocab = vocab, .max_requests = 16, .backend = backend()});
  }
};

std::vector<float> WidenedRow(const Batch& batch, int64_t r) {
  std::vector<float> values;
  for (int64_t id = 0; id < batch.view().vocab; ++id) values.push_back(batch.Get(r, id));
  return values;
}

// The lists and the logprob that the request asked for, by the function for one row.
void AddLogprobs(const LiteralRequest& request, const Batch& raw, int64_t r,
                 const std::vector<float>& adjusted, size_t width, TokenResult* result,
                 std::vector<int32_t>* ids, std::vector<float>* values) {
  ids->assign(width, -1);
  values->assign(width, std::numeric_limits<float>::quiet_NaN());
  const SamplingParams& params = request.params;
  if (result->id < 0 || !params.logprobs.has_value()) return;
  const Batch processed({adjusted});
  const bool is_raw = params.logprob_mode == LogprobMode::kRawLogprobs ||
                      params.logprob_mode == LogprobMode::kRawLogits;
  const LogitsView view = is_raw ? raw.row(r) : processed.view();
  const int64_t own = *params.logprobs < 0 ? view.vocab + 1 : *params.logprobs + 1;
  const SelectParams select = params.Select();
  const Workspace workspace(SelectWorkspaceBytes(view, {}));
  Logprobs({view, params.logprob_mode, {&select, 1}}, {result, 1},
           {static_cast<int32_t>(own), std::span(*ids).first(static_cast<size_t>(own)),
            std::span(*values).first(static_cast<size_t>(own))},
           {Backend::kRef, {}, workspace.span()});
}

TEST_P(StepSampler, EqualsAdjustSelectDrawWithEveryAdjustment) {
  Random random(1);
  int64_t tokens = 0;
  for (int round = 0; round < 40; ++round) {
    const int64_t vocab = random.Between(4, 70);
    const size_t words = static_cast<size_t>((vocab + 31) / 32);
    const size_t width = static_cast<size_t>(vocab) + 1;
    Sampler sampler = NewSampler(vocab);
    std::vector<LiteralRequest> literal;
    std::vector<RequestHandle> handles;
    for (int i = 0; i < 6; ++i) {
      literal.push_back(RandomLiteralRequest(vocab, random));
      handles.push_back(AddTo(sampler, literal.back()));
      EXPECT_EQ(sampler.Seed(handles.back()), *literal.back().params.seed);
    }
    for (int step = 0; step < 8; ++step) {
      std::vector<std::vector<float>> rows;
      std::vector<StepRequest> requests;
      std::vector<std::vector<int32_t>> bitmasks;
      for (size_t i = 0; i < literal.size(); ++i) {
        rows.push_back(MakeRow(kAllRowKinds[random.Bits() % 8], vocab, random));
        bitmasks.push_back(random.Coin(0.3) ? RandomBitmask(vocab, 1, random)
                                            : std::vector<int32_t>{});
        const bool forces = random.Coin(0.1);
        requests.push_back({.request = handles[i],
                            .bitmask = bitmasks[i],
                            .forced = forces ? static_cast<int32_t>(random.Below(vocab)) : -1});
      }
      const Batch batch(rows, dtype());
      const Stepped stepped = StepAll(sampler, batch.view(), requests, static_cast<int64_t>(width));
      for (size_t i = 0; i < literal.size(); ++i) {
        const int64_t r = static_cast<int64_t>(i);
        const int32_t* bitmask = bitmasks[i].empty() ? nullptr : bitmasks[i].data();
        const std::vector<float> adjusted =
            literal[i].Adjusted(WidenedRow(batch, r), bitmask, requests[i].forced);
        CutMass mass;
        TokenResult expected = literal[i].Sampled(adjusted, &mass);
        std::vector<int32_t> ids;
        std::vector<float> values;
        AddLogprobs(literal[i], batch, r, adjusted, width, &expected, &ids, &values);
        auto part = [](const auto& all, size_t at, size_t size) {
          return std::span(all).subspan(at * size, size);
        };
        EXPECT_TRUE(SameSequence(part(stepped.adjusted, i, static_cast<size_t>(vocab)), adjusted));
        ASSERT_TRUE(SameBits(stepped.tokens[i], expected))
            << ::testing::PrintToString(stepped.tokens[i]) << " instead of "
            << ::testing::PrintToString(expected);
        EXPECT_EQ(stepped.emitted[i], expected.id >= 0 ? 1 : 0);
        EXPECT_TRUE(SameBits(stepped.masses[i], mass));
        EXPECT_TRUE(SameSequence(part(stepped.ids, i, width), ids));
        EXPECT_TRUE(SameSequence(part(stepped.values, i, width), values));
        std::vector<int32_t> kept(words);
        const Batch processed({adjusted});
        KeptBitmask(processed.view(), {&expected.cut, 1}, kept, {});
        EXPECT_TRUE(SameSequence(part(stepped.kept, i, words), kept));
        if (expected.id >= 0) {
          literal[i].output.push_back(expected.id);
          ++tokens;
        }
        std::vector<int32_t> history = literal[i].prompt;
        history.insert(history.end(), literal[i].output.begin(), literal[i].output.end());
        EXPECT_TRUE(SameSequence(sampler.Tokens(handles[i]), history));
      }
    }
  }
  EXPECT_GT(tokens, 1500);  // most rows are not empty: the test tests something
}

TEST_P(StepSampler, GivesTheSameTokensWhetherOrNotAnythingIsReported) {
  Random random(2);
  const int64_t vocab = 40;
  Sampler plain = NewSampler(vocab);
  Sampler reporting = NewSampler(vocab);
  std::vector<StepRequest> plain_requests;
  std::vector<StepRequest> reporting_requests;
  for (int i = 0; i < 10; ++i) {
    const LiteralRequest literal = RandomLiteralRequest(vocab, random);
    plain_requests.push_back({.request = AddTo(plain, literal)});
    reporting_requests.push_back({.request = AddTo(reporting, literal)});
  }
  for (int step = 0; step < 20; ++step) {
    std::vector<std::vector<float>> rows;
    for (int i = 0; i < 10; ++i) rows.push_back(MakeRow(RowKind::kMid, vocab, random));
    const Batch batch(rows, dtype());
    const auto tokens = StepTokens(plain, batch.view(), plain_requests);
    const auto reported = StepAll(reporting, batch.view(), reporting_requests, vocab + 1);
    for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i].id, reported.tokens[i].id);
  }
}

// What each request sees is a function of its own number and step, so that the same requests can
// run in different company.
struct Company {
  int64_t vocab;
  std::vector<LiteralRequest> requests;
  std::vector<std::vector<std::vector<float>>> rows;  // [step][request]

  Company(int64_t vocab_in, size_t count, size_t steps, Random& random) : vocab(vocab_in) {
    for (size_t i = 0; i < count; ++i) requests.push_back(RandomLiteralRequest(vocab, random));
    rows.resize(steps);
    for (auto& step : rows) {
      for (size_t i = 0; i < count; ++i) {
        step.push_back(MakeRow(kAllRowKinds[random.Bits() % 8], vocab, random));
      }
    }
  }

  // The tokens of each request, when each step runs the groups one after the other.
  std::vector<std::vector<int32_t>> Run(Sampler sampler, DType dtype,
                                        const std::vector<std::vector<size_t>>& groups) const {
    std::vector<RequestHandle> handles;
    for (const LiteralRequest& request : requests) handles.push_back(AddTo(sampler, request));
    for (const auto& step : rows) {
      for (const auto& group : groups) {
        std::vector<std::vector<float>> values;
        std::vector<StepRequest> step_requests;
        for (const size_t i : group) {
          values.push_back(step[i]);
          step_requests.push_back({.request = handles[i]});
        }
        const Batch batch(values, dtype);
        StepTokens(sampler, batch.view(), step_requests);
      }
    }
    std::vector<std::vector<int32_t>> tokens;
    for (const RequestHandle& handle : handles) {
      const auto own = sampler.Tokens(handle);
      tokens.emplace_back(own.begin(), own.end());
    }
    return tokens;
  }
};

TEST_P(StepSampler, GivesARequestTheSameTokensAloneAndInAnyBatchInAnyOrder) {
  Random random(3);
  for (int round = 0; round < 10; ++round) {
    const Company company(random.Between(5, 50), 8, 10, random);
    const auto together =
        company.Run(NewSampler(company.vocab), dtype(), {{0, 1, 2, 3, 4, 5, 6, 7}});
    EXPECT_EQ(company.Run(NewSampler(company.vocab), dtype(), {{5, 2, 7, 0, 1, 6, 3, 4}}),
              together);
    EXPECT_EQ(
        company.Run(NewSampler(company.vocab), dtype(), {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}}),
        together);
    EXPECT_EQ(company.Run(NewSampler(company.vocab), dtype(), {{7, 3}, {1, 0, 2}, {4, 6, 5}}),
              together);
  }
}

TEST_P(StepSampler, RunsOnThreads) {
  Random random(4);
  const Company company(60, 16, 10, random);
  std::vector<size_t> all(16);
  std::iota(all.begin(), all.end(), size_t{0});
  EXPECT_EQ(company.Run(Sampler({.vocab = company.vocab,
                                 .max_requests = 16,
                                 .backend = backend(),
                                 .parallel = OnThreads(3)}),
                        dtype(), {all}),
            company.Run(NewSampler(company.vocab), dtype(), {all}));
}

TEST_P(StepSampler, LeavesTheLogitsAlone) {
  Random random(5);
  Sampler sampler = NewSampler(30);
  const LiteralRequest literal = RandomLiteralRequest(30, random);
  const StepRequest request{.request = AddTo(sampler, literal), .forced = 3};
  const Batch batch({MakeRow(RowKind::kMid, 30, random)}, dtype());
  const std::vector<std::byte> before(batch.bytes().begin(), batch.bytes().end());
  StepAll(sampler, batch.view(), {&request, 1}, 31);
  EXPECT_TRUE(SameSequence(batch.bytes(), before));
}

TEST_P(StepSampler, ABadRowEmitsNothingAndItsRequestGoesOnUnchanged) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler = NewSampler(3);
  const SamplingParams params{.temperature = 0.0f};
  const std::vector<int32_t> prompt = {2};
  const std::vector<StepRequest> requests = {
      {.request = sampler.Add({.params = params, .prompt = prompt})},
      {.request = sampler.Add({.params = params, .prompt = prompt})}};
  const Batch bad({{0.0f, nan, 0.0f}, {0.0f, 1.0f, 0.0f}}, dtype());
  std::vector<int32_t> emitted;
  const auto tokens = StepTokens(sampler, bad.view(), requests, &emitted);
  EXPECT_EQ(tokens[0].status, RowStatus::kNanInput);
  EXPECT_EQ(emitted, (std::vector<int32_t>{0, 1}));
  EXPECT_TRUE(SameSequence(sampler.Tokens(requests[0].request), prompt));
  EXPECT_TRUE(SameSequence(sampler.Tokens(requests[1].request), std::vector<int32_t>{2, 1}));
  // A NaN that is masked is no trouble.
  const std::vector<int32_t> without_1 = {0b101};
  const StepRequest masked{.request = requests[0].request, .bitmask = without_1};
  EXPECT_EQ(StepTokens(sampler, bad.row(0), {&masked, 1})[0].id, 0);
}

SLUICE_FOR_EACH_BACKEND(StepSampler);

}  // namespace
}  // namespace sluice::test
