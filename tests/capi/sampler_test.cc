// A sampler of the C interface goes through the same life as one of C++ and gives the same bits at
// every step: requests of every kind, drafts, grammars, processors, every output.
#include <array>
#include <bit>
#include <limits>
#include <memory>

#include "tests/capi/over_c.h"
#include "tests/sampler/stepping.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr int64_t kVocab = 37;

void ExpectSame(const Stepped& c, const Stepped& cpp) {
  EXPECT_TRUE(SameSequence(c.tokens, cpp.tokens));
  EXPECT_TRUE(SameSequence(c.emitted, cpp.emitted));
  EXPECT_TRUE(SameSequence(c.ids, cpp.ids));
  EXPECT_TRUE(SameSequence(c.values, cpp.values));
  EXPECT_TRUE(SameSequence(c.kept, cpp.kept));
  EXPECT_TRUE(SameSequence(c.masses, cpp.masses));
  EXPECT_TRUE(SameSequence(c.adjusted, cpp.adjusted));
  EXPECT_TRUE(SameSequence(c.path, cpp.path));
}

// Looks at all that a processor is given.
void Change(void* context, std::span<const int32_t> tokens, size_t prompt_length,
            std::span<float> logits) {
  ++*static_cast<int*>(context);
  for (size_t i = 0; i < logits.size(); i += 3) {
    logits[i] += 0.125f * static_cast<float>(tokens.size() - prompt_length + 1);
  }
}

// What a request's part of a step points to.
struct StepParts {
  std::vector<int32_t> drafts;
  std::vector<int32_t> parents;
  std::vector<int32_t> bitmask;
  std::vector<float> q;

  StepParts(Random& random) {
    for (int64_t n = random.Below(4); n > 0; --n) {
      drafts.push_back(static_cast<int32_t>(random.Below(kVocab)));
    }
    const int64_t n = static_cast<int64_t>(drafts.size());
    if (random.Coin()) parents = RandomParents(n, random);
    if (random.Coin(0.3)) bitmask = RandomBitmask(kVocab, n + 1, random);
    if (random.Coin()) q.assign(static_cast<size_t>(n * kVocab), 1.0f / kVocab);
  }
  StepRequest For(RequestHandle handle, int32_t forced) const {
    StepRequest request{.request = handle,
                        .drafts = drafts,
                        .parents = parents,
                        .bitmask = bitmask,
                        .forced = forced};
    const int64_t n = static_cast<int64_t>(drafts.size());
    if (!q.empty()) request.draft_probabilities = {q.data(), n, kVocab, kVocab};
    return request;
  }
};

class CSamplerLife : public BackendTest {};

TEST_P(CSamplerLife, IsThatOfTheCppSampler) {
  constexpr int kRequests = 4;
  int calls = 0;
  const LogitsProcessor processor{&calls, &Change};
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const SamplerOptions options{.vocab = kVocab, .max_requests = kRequests, .backend = backend()};
    Sampler cpp(options);
    over_c::Sampler c(options);
    std::vector<RequestHandle> handles;
    for (size_t i = 0; i < kRequests; ++i) {
      LiteralRequest literal = RandomLiteralRequest(kVocab, random);
      literal.params.draft_mode = random.Coin() ? DraftMode::kMatch : DraftMode::kReject;
      const Request request{.params = literal.params,
                            .prompt = literal.prompt,
                            .choice = literal.choice,
                            .processors = {&processor, i % 2}};
      handles.push_back(cpp.Add(request));
      const RequestHandle handle = c.Add(request);
      EXPECT_EQ(handle.slot, handles.back().slot);
      EXPECT_EQ(handle.generation, handles.back().generation);
      EXPECT_EQ(c.Seed(handle), cpp.Seed(handle));
      EXPECT_EQ(c.PromptLength(handle), cpp.PromptLength(handle));
    }
    for (int step = 0; step < 6; ++step) {
      std::vector<StepParts> parts;
      parts.reserve(kRequests);
      std::vector<StepRequest> requests;
      std::vector<std::vector<float>> rows;
      for (const RequestHandle handle : handles) {
        parts.emplace_back(random);
        const bool forces = random.Coin(0.1);
        const auto token = static_cast<int32_t>(random.Below(kVocab));
        requests.push_back(parts.back().For(handle, forces ? token : -1));
        for (size_t r = 0; r <= parts.back().drafts.size(); ++r) {
          rows.push_back(MakeRow(kAllRowKinds[random.Below(8)], kVocab, random));
        }
      }
      const Batch batch(rows, dtype());
      ExpectSame(StepAll(c, batch.view(), requests, kVocab + 1),
                 StepAll(cpp, batch.view(), requests, kVocab + 1));
      // Tokens from elsewhere, tokens taken back.
      const std::vector<int32_t> accepted = {1, 2, 3};
      cpp.Accept(handles[0], accepted);
      c.Accept(handles[0], accepted);
      cpp.Rollback(handles[0], 2);
      c.Rollback(handles[0], 2);
      for (const RequestHandle handle : handles) {
        EXPECT_TRUE(SameSequence(c.Tokens(handle), cpp.Tokens(handle)));
      }
    }
    EXPECT_EQ(c.FreeSlots(), 0);
    c.Remove(handles[1]);
    EXPECT_EQ(c.FreeSlots(), 1);
  }
  EXPECT_GT(calls, 0);
}

SLUICE_FOR_EACH_BACKEND(CSamplerLife);

// Each of the six alone, on rows and with filters where it changes what is kept.
TEST(CSampler, EverySwitchOfAProfileArrives) {
  const std::vector<SamplingParams> filters = {{.top_k = 5},
                                               {.top_p = 0.5f},
                                               {.top_k = 6, .top_p = 0.5f},
                                               {.top_p = 0.6f, .min_p = 0.2f},
                                               {.temperature = 0.5f, .top_p = 0.6f},
                                               {.top_k = 3, .frequency_penalty = 2.0f}};
  Random random(11);
  std::vector<float> equal(kVocab, -std::numeric_limits<float>::infinity());
  std::fill_n(equal.begin(), 8, 0.0f);
  std::vector<std::vector<float>> rows = {equal};
  for (int i = 0; i < 4; ++i) rows.push_back(MakeRow(RowKind::kMid, kVocab, random));

  using Switches = std::array<uint8_t, sizeof(Profile)>;
  for (size_t s = 0; s < sizeof(Profile); ++s) {
    SCOPED_TRACE(testing::Message() << "switch " << s);
    Switches switches = {};
    switches[s] = 1;
    int changed = 0;
    for (SamplingParams params : filters) {
      params.seed = 3;
      for (const std::vector<float>& row : rows) {
        const Batch batch({row});
        auto stepped = [&](auto sampler_of, const Switches& profile) {
          params.profile = std::bit_cast<Profile>(profile);
          auto sampler = sampler_of();
          const StepRequest step{.request = AddTo(*sampler, {params, {0, 1, 2}, {}, 0})};
          return StepAll(*sampler, batch.view(), {&step, 1});
        };
        auto cpp = [] { return std::make_unique<Sampler>(SamplerOptions{kVocab, 1}); };
        auto c = [] { return std::make_unique<over_c::Sampler>(SamplerOptions{kVocab, 1}); };
        const Stepped expected = stepped(cpp, switches);
        ExpectSame(stepped(c, switches), expected);
        changed += expected.kept != stepped(cpp, {}).kept;
      }
    }
    EXPECT_GT(changed, 0);
  }
}

// With a Sluice draft model, as speculative decoding has it.
TEST(CSampler, ReadsTheDraftModelInPlace) {
  Random random(5);
  SamplingParams params;
  params.seed = 9;
  params.draft_mode = DraftMode::kReject;
  const LiteralRequest request{params, {1, 2}, {}, 0};
  Sampler cpp({.vocab = kVocab, .max_requests = 1});
  over_c::Sampler c({.vocab = kVocab, .max_requests = 1});
  const Batch batch(
      {MakeRow(RowKind::kMid, kVocab, random), MakeRow(RowKind::kMid, kVocab, random)});
  const Batch model({MakeRow(RowKind::kMid, kVocab, random)});
  const SelectParams model_params{.top_k = 5};
  const std::vector<Cut> cuts = Selected({model.view(), {&model_params, 1}}).cuts;
  const std::vector<int32_t> drafts = {KeptIds(model.view(), cuts)[0][0]};
  const NoiseKey key{3, 2, 0, DrawStream::kDraft};
  StepRequest step{.request = AddTo(cpp, request), .drafts = drafts};
  step.draft_model = {model.view(), {&model_params, 1}, {&key, 1}};
  step.draft_cuts = cuts;
  AddTo(c, request);  // the same handle: the first slot
  ExpectSame(StepAll(c, batch.view(), {&step, 1}), StepAll(cpp, batch.view(), {&step, 1}));
}

TEST(CSampler, AnUnseededRequestCanBeReplayed) {
  over_c::Sampler c({.vocab = kVocab, .max_requests = 2});
  Random random(6);
  const Batch batch({MakeRow(RowKind::kFlat, kVocab, random)});
  const StepRequest unseeded{.request = c.Add({})};
  SamplingParams params;
  params.seed = c.Seed(unseeded.request);
  const StepRequest replayed{.request = c.Add({.params = params})};
  EXPECT_TRUE(SameSequence(StepTokens(c, batch.view(), {&unseeded, 1}),
                           StepTokens(c, batch.view(), {&replayed, 1})));
}

TEST(CSampler, DestroyingNullDoesNothing) { sluice_sampler_destroy(nullptr); }

}  // namespace
}  // namespace sluice::test
