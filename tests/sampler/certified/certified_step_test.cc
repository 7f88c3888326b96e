// Steps of a Sampler's requests from a certified head: the tokens, statuses and Cuts of Project and
// then the Sampler's own step, which accept them alike.
#include <gtest/gtest.h>

#include "tests/head/certified_draws.h"
#include "tests/sampler/stepping.h"
#include "tests/support/bad_input.h"
#include "tests/support/slowdown.h"
#include "tests/support/threads.h"

namespace sluice::test {
namespace {

Drawn RunStep(const CertifiedHead& head, const CertifiedInput& input, Sampler& sampler,
              std::span<const RequestHandle> requests, const Execution& execution) {
  return RunWithMemory(head, input, execution, [&](Drawn& drawn, const Execution& with) {
    return sampler.StepFromHead(head, input, requests, drawn.results, drawn.rows, with);
  });
}

Drawn RunStepIds(const CertifiedHead& head, const CertifiedInput& input, Sampler& sampler,
                 std::span<const RequestHandle> requests, const Execution& execution) {
  return RunWithMemory(head, input, execution, [&](Drawn& drawn, const Execution& with) {
    std::vector<int32_t> ids(drawn.rows.size());
    std::vector<RowStatus> statuses(drawn.rows.size());
    const CertifiedStats stats =
        sampler.StepIdsFromHead(head, input, requests, ids, statuses, drawn.rows, with);
    for (size_t r = 0; r < ids.size(); ++r) {
      drawn.results[r].id = ids[r];
      drawn.results[r].status = statuses[r];
    }
    return stats;
  });
}

// The same requests in three samplers: one for each way to step.
class Requests {
 public:
  Requests(int64_t vocab, Backend backend)
      : backend_(backend),
        samplers_{Sampler({.vocab = vocab, .backend = backend}),
                  Sampler({.vocab = vocab, .backend = backend}),
                  Sampler({.vocab = vocab, .backend = backend})} {}

  void Add(const LiteralRequest& request) {
    handles_.push_back(AddTo(samplers_[0], request));  // the others name it alike
    for (Sampler* other : {&samplers_[1], &samplers_[2]}) AddTo(*other, request);
  }

  // All of them, with each hidden state's logits as the dense head has them.
  void Step(const CertifiedHead& head, const CertifiedInput& input) {
    const Batch batch(DenseLogits(head.head(), {input.hidden, {}}));
    const size_t words = input.bitmask.size() / handles_.size();
    std::vector<StepRequest> requests;
    for (size_t i = 0; i < handles_.size(); ++i) {
      requests.push_back(
          {.request = handles_[i], .bitmask = input.bitmask.subspan(i * words, words)});
    }
    const std::vector<TokenResult> expected = StepTokens(samplers_[0], batch.view(), requests);
    const Drawn drawn = RunStep(head, input, samplers_[1], handles_, {backend_});
    ASSERT_TRUE(SameSequence(drawn.results, expected));
    ids = RunStepIds(head, input, samplers_[2], handles_, {backend_});
    ASSERT_TRUE(SameSequence(ids.results, WithoutCuts(expected)));
    for (const RequestHandle& handle : handles_) {
      for (const Sampler* other : {&samplers_[1], &samplers_[2]}) {
        ASSERT_TRUE(SameSequence(other->Tokens(handle), samplers_[0].Tokens(handle)));
      }
    }
  }

  Drawn ids;  // of the last step

 private:
  Backend backend_;
  Sampler samplers_[3];
  std::vector<RequestHandle> handles_;
};

// Requests whose tokens come back often enough to be penalised, of a large vocabulary.
LiteralRequest RandomRequest(int64_t vocab, Random& random) {
  const int64_t named = std::min<int64_t>(vocab, random.Coin() ? 40 : vocab);
  LiteralRequest request = RandomLiteralRequest(named, random);
  request.params.logprobs.reset();
  if (request.params.top_k > vocab / 4) request.params.top_k = 8;
  for (int64_t n = random.Coin() ? random.Below(3 * named) : 0; n > 0; --n) {
    request.prompt.push_back(static_cast<int32_t>(random.Below(named)));
  }
  if (random.Coin(0.1)) request.params.repetition_penalty = 3e38f;
  if (random.Coin(0.1)) request.params.repetition_penalty = 1e-38f;
  return request;
}

class CertifiedStep : public BackendTest {};

TEST_P(CertifiedStep, IsTheSamplersForEveryKindOfHeadAndRequest) {
  Random random(1);
  int64_t rows = 0, certified = 0, allowed = 0;
  for (int n = 0; n < Rounds(28); ++n) {
    const HeadKind head_kind = kAllHeadKinds[static_cast<size_t>(n) % std::size(kAllHeadKinds)];
    const CertificateKind kind = kCertificateKinds[random.Below(2)];
    const int64_t vocab = random.Between(4, 900);
    const int64_t dim = random.Between(1, 200);
    const Rows weights = Representable(MakeHead(head_kind, vocab, dim, random), dtype());
    const Batch weight(weights, dtype());
    const std::vector<float> bias = MakeBias(vocab, random);
    const CertifiedHead head({Matrix(weight), bias},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
    Requests requests(vocab, backend());
    for (int r = 0; r < 6; ++r) requests.Add(RandomRequest(vocab, random));
    for (int step = 0; step < Rounds(4); ++step) {
      Rows states;
      for (int r = 0; r < 6; ++r) {
        const HiddenKind hidden_kind =
            random.Coin(0.7) ? HiddenKind::kPeaked
                             : kAllHiddenKinds[random.Below(std::size(kAllHiddenKinds))];
        states.push_back(MakeHidden(hidden_kind, weights, random));
      }
      if (random.Coin(0.1)) states[5][0] = random.Coin() ? NAN : INFINITY;
      const Batch hidden(states, kAllDTypes[random.Below(3)]);
      std::vector<int32_t> bitmask;
      if (random.Coin(0.4)) bitmask = RandomBitmask(vocab, 6, random);
      ASSERT_NO_FATAL_FAILURE(requests.Step(head, {Matrix(hidden), bitmask}))
          << n << " " << Name(kind) << " " << vocab << " x " << dim << ", step " << step;
      for (const CertifiedRow& row : requests.ids.rows) {
        ++rows;
        certified += row.path == CertifiedPath::kPlanes ? 1 : 0;
        allowed += row.path == CertifiedPath::kAllowed ? 1 : 0;
      }
    }
  }
  EXPECT_GT(certified, rows / 4);  // the test tests something
  EXPECT_GT(allowed, rows / 20);
}

// Logits that a penalty ties, turns round or drives out of the range of floats.
TEST_P(CertifiedStep, HostileRowsAreTheSamplers) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "the rows are made in fp32";
  constexpr int64_t kVocab = 1300;
  Random random(2);
  struct Hostile {
    std::vector<float> logits;
    float hidden;
  };
  std::vector<Hostile> all = {{std::vector<float>(kVocab, 1.0f), 1.0f},
                              {std::vector<float>(kVocab, 0.0f), 1.0f},
                              {std::vector<float>(kVocab, -1.0f), 1.0f},
                              {std::vector<float>(kVocab, 1.0f), INFINITY},
                              {std::vector<float>(kVocab, 1.0f), NAN},
                              {{}, 3e38f},
                              {{}, 4.0f}};
  for (int64_t v = 0; v < kVocab; ++v) {
    all[5].logits.push_back(v % 7 == 0 ? -1.0f : 1.0f / static_cast<float>(1 + v % 90));
    all[6].logits.push_back(static_cast<float>(v % 64) * 0.25f - 8.0f);
  }
  for (const Hostile& hostile : all) {
    Rows weights;
    for (const float x : hostile.logits) weights.push_back({x});
    const Batch weight(weights, DType::kF32);
    const Batch hidden(Rows(6, std::vector<float>{hostile.hidden}), DType::kF32);
    for (const CertificateKind kind : kCertificateKinds) {
      const CertifiedHead head({Matrix(weight), {}},
                               HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
      Requests requests(kVocab, backend());
      for (int r = 0; r < 6; ++r) requests.Add(RandomRequest(kVocab, random));
      for (int step = 0; step < Rounds(3); ++step) {
        ASSERT_NO_FATAL_FAILURE(requests.Step(head, {Matrix(hidden), {}})) << hostile.hidden;
      }
    }
  }
}

// A repetition penalty divides what is above 0 and multiplies what is below: above and below with
// the head's bias, which turns both tokens of the prompt round here.
TEST_P(CertifiedStep, PenalisesTheLogitWithItsBias) {
  constexpr size_t kVocab = 400;
  struct Turned {
    float weight, bias, other;  // `other`: between the right value and that without the bias
  };
  for (const Turned& turned : {Turned{5.0f, -6.0f, -3.0f}, Turned{-5.0f, 6.0f, 0.25f}}) {
    Rows weights(kVocab, {-20.0f});
    std::vector<float> bias(kVocab, 0.0f);
    weights[7] = {turned.weight};
    bias[7] = turned.bias;
    weights[8] = {turned.other};
    const Batch weight(weights, dtype());
    const Batch hidden({{1.0f}}, dtype());
    for (const CertificateKind kind : kCertificateKinds) {
      const CertifiedHead head({Matrix(weight), bias},
                               HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
      Requests requests(kVocab, backend());
      LiteralRequest request;
      request.params.seed = 1;
      request.params.temperature = 0.0f;
      request.params.repetition_penalty = 2.0f;
      request.prompt = {7};
      requests.Add(request);
      ASSERT_NO_FATAL_FAILURE(requests.Step(head, {Matrix(hidden), {}})) << Name(kind);
      EXPECT_EQ(requests.ids.rows[0].path, CertifiedPath::kPlanes);
      EXPECT_EQ(requests.ids.results[0].id, 7);
    }
  }
}

// Bytes: of the tokens, of what is said of the rows, and of the whole call.
TEST_P(CertifiedStep, GivesTheSameBytesOnOneThreadAndOnMore) {
  Random random(4);
  constexpr int64_t kVocab = 1200;
  constexpr size_t kRows = 9;
  const Rows weights = MakeHead(HeadKind::kTrained, kVocab, 70, random);
  const Batch weight(weights, dtype());
  const std::vector<float> bias = MakeBias(kVocab, random);
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight), bias},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
    std::vector<LiteralRequest> given;
    for (size_t r = 0; r < kRows; ++r) given.push_back(RandomRequest(kVocab, random));
    std::vector<Rows> states(kSlowdown == 1 ? 3 : 1);
    for (Rows& step : states) {
      for (size_t r = 0; r < kRows; ++r) {
        const HiddenKind hidden_kind = r == 5 ? HiddenKind::kZero : HiddenKind::kPeaked;
        step.push_back(MakeHidden(hidden_kind, weights, random));
      }
    }
    const auto run = [&](const ParallelFor& parallel, bool with_cuts) {
      Sampler sampler({.vocab = kVocab, .backend = backend()});
      std::vector<RequestHandle> requests;
      for (const LiteralRequest& request : given) requests.push_back(AddTo(sampler, request));
      std::vector<Drawn> steps;
      for (const Rows& step : states) {
        const Batch hidden(step, dtype());
        const Execution execution{backend(), parallel};
        const CertifiedInput input{Matrix(hidden), {}};
        steps.push_back(with_cuts ? RunStep(head, input, sampler, requests, execution)
                                  : RunStepIds(head, input, sampler, requests, execution));
      }
      return steps;
    };
    for (const bool with_cuts : {false, true}) {
      const std::vector<Drawn> expected = run({}, with_cuts);
      ASSERT_GT(expected[0].stats.dense_rows, 0);
      ASSERT_LT(expected[0].stats.dense_rows, 5);
      for (const int workers : {1, 2, 3, 4}) {
        const std::vector<Drawn> actual = run(OnThreads(workers), with_cuts);
        for (size_t s = 0; s < states.size(); ++s) {
          ASSERT_TRUE(SameSequence(actual[s].results, expected[s].results)) << workers;
          for (size_t r = 0; r < kRows; ++r) {
            const CertifiedRow& row = actual[s].rows[r];
            const CertifiedRow& same = expected[s].rows[r];
            ASSERT_EQ(row.path, same.path) << workers;
            ASSERT_EQ(row.reason, same.reason) << workers;
            ASSERT_EQ(row.survivors, same.survivors) << workers;
            ASSERT_EQ(row.margin, same.margin) << workers;
          }
          EXPECT_EQ(actual[s].stats.survivors, expected[s].stats.survivors);
          EXPECT_EQ(actual[s].stats.dense_rows, expected[s].stats.dense_rows);
          EXPECT_EQ(actual[s].stats.bytes_read, expected[s].stats.bytes_read);
          EXPECT_EQ(actual[s].stats.least_margin, expected[s].stats.least_margin);
        }
      }
    }
  }
}

TEST_P(CertifiedStep, OfUsualRequestsNeedsNoDenseHead) {
  Random random(3);
  const int64_t vocab = 4000;
  const Rows weights = MakeHead(HeadKind::kNormal, vocab, 256, random);
  const Batch weight(weights, dtype());
  std::vector<LiteralRequest> usual(6);
  for (LiteralRequest& request : usual) {
    request.params.seed = random.Bits();
    request.params.repetition_penalty = 1.1f;
    for (int i = 0; i < 500; ++i) {
      request.prompt.push_back(static_cast<int32_t>(random.Below(vocab)));
    }
  }
  usual[0].params.temperature = 0.0f;
  usual[1].params.top_k = 3;
  usual[1].params.frequency_penalty = 0.3f;
  usual[2].params.logit_bias = {{5, -100.0f}, {6, 2.0f}};
  usual[3].params.top_p = 0.5f;
  usual[3].params.presence_penalty = 0.5f;
  usual[4].params.min_p = 0.1f;
  usual[4].params.bad_words = {{8}, {9, 10}};
  usual[5].params.allowed_token_ids = {{5, 6, 7}};
  usual[5].params.top_n_sigma = 1.0f;
  for (const CertificateKind kind : kCertificateKinds) {
    const CertifiedHead head({Matrix(weight), {}},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}));
    Requests requests(vocab, backend());
    for (const LiteralRequest& request : usual) requests.Add(request);
    for (int step = 0; step < Rounds(3); ++step) {
      Rows states;
      for (int r = 0; r < 6; ++r) {
        states.push_back(MakeHidden(HiddenKind::kPeaked, weights, random));
        for (float& h : states.back()) h *= 3.0f;
      }
      const Batch hidden(states, dtype());
      ASSERT_NO_FATAL_FAILURE(requests.Step(head, {Matrix(hidden), {}})) << Name(kind);
      EXPECT_EQ(requests.ids.stats.dense_rows, 0) << Name(kind);
      EXPECT_EQ(requests.ids.rows[5].path, CertifiedPath::kAllowed);
      EXPECT_EQ(requests.ids.rows[5].survivors, 3);
    }
  }
}

SLUICE_FOR_EACH_BACKEND(CertifiedStep);

TEST(CertifiedStepChecks, RefuseWhatDoesNotFitAndChangeNothing) {
  const std::vector<float> values(80, 0.5f);
  const MatrixView weight{values.data(), 10, 8, 8, DType::kF32, {}};
  const CertifiedHead head({weight}, HeadPlanes::Build(weight, {}));
  const CertifiedInput input{{values.data(), 2, 8, 8, DType::kF32, {}}, {}};
  Sampler sampler({.vocab = 10});
  const RequestHandle first = sampler.Add({});
  const RequestHandle second = sampler.Add({});
  const auto step = [&](Sampler& with, const std::vector<RequestHandle>& requests) {
    return RunStepIds(head, input, with, requests, {});
  };
  const LogitsProcessor processor{
      .apply = [](void*, std::span<const int32_t>, size_t, std::span<float>) {},
      .argmax_invariant = true};
  Request request{.processors = {&processor, 1}};
  const RequestHandle processed = sampler.Add(request);
  request.params.temperature = 0.0f;
  const RequestHandle greedy = sampler.Add(request);
  ExpectError([&] { step(sampler, {first, processed}); }, "requests",
              "a request with a logits processor",
              "requests with no processor that runs: processors need all logits");
  ExpectError([&] { step(sampler, {first, first}); }, "requests", "a request that appears twice",
              "each request once a step");
  ExpectError([&] { step(sampler, {first}); }, "requests.size()", "1", "2");
  Sampler other({.vocab = 11});
  ExpectError([&] { step(other, {first, second}); }, "sampler.vocab", "11", "10");
  EXPECT_EQ(sampler.Tokens(first).size(), 0u);
  EXPECT_NO_THROW(step(sampler, {second, greedy}));  // it cannot move the argmax
  EXPECT_NO_THROW(step(sampler, {first, second}));
  EXPECT_EQ(sampler.Tokens(first).size(), 1u);
  EXPECT_EQ(sampler.Tokens(second).size(), 2u);
}

}  // namespace
}  // namespace sluice::test
