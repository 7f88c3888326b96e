// The library has no memory of its own: calls use the workspace, steps what the sampler and its
// requests took at their start.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "sluice/sluice.hpp"
#include "tests/head/heads.h"
#include "tests/sampler/stepping.h"
#include "tests/support/batch.h"
#include "tests/support/counting_allocator.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

// EXPECT_EQ(AllocationsOf([&] { ... }), 0)
template <typename Body>
int64_t AllocationsOf(Body body) {
  const int64_t before = AllocationCount();
  body();
  return AllocationCount() - before;
}

TEST(Allocation, IsCounted) {
  EXPECT_EQ(AllocationsOf([] { ::operator delete(::operator new(1)); }), 1);
}

TEST(Allocation, NoCallAllocates) {
  Random random(1);
  std::vector<std::vector<float>> rows;
  for (const RowKind kind : kAllRowKinds) rows.push_back(MakeRow(kind, 100, random));
  Batch batch(rows);
  const SelectParams params{.top_k = 20,
                            .top_p = 0.9f,
                            .min_p = 0.01f,
                            .top_n_sigma = 2.0f,
                            .typical_p = 0.9f,
                            .xtc_probability = 0.5f};
  const NoiseKey key{1, 2, 3};
  const SelectInput input{batch.view(), {&params, 1}, {&key, 1}};
  const Workspace workspace(SelectWorkspaceBytes(batch.view(), {}));
  const Execution execution{Backend::kRef, {}, workspace.span()};
  std::vector<Cut> cuts(8);
  std::vector<CutMass> masses(8);
  std::vector<TokenResult> results(8);
  std::vector<int32_t> bitmask(8 * 4);
  std::vector<int64_t> offsets = {0};
  std::vector<int32_t> ids(8 * 100);
  std::vector<float> values(8 * 100);
  std::vector<uint64_t> weights(8 * 100);
  std::vector<int32_t> emitted(4);
  std::vector<RowStatus> statuses(8);
  const std::vector<int64_t> first_row = {0, 2, 4, 6, 8};
  const std::vector<int32_t> draft_ids(8, 7);
  const Batch q(std::vector(8, std::vector<float>(100, 0.01f)));
  const Batch hidden({MakeRow(RowKind::kNormal, 100, random)});
  const std::vector<Shard> shards = {{batch.view(), 0}, {batch.view(), 100}};
  Batch out({std::vector<float>(8)});

  EXPECT_EQ(AllocationsOf([&] { Select(input, cuts, masses, execution); }), 0);
  EXPECT_EQ(AllocationsOf([&] { KeptBitmask(batch.view(), cuts, bitmask, execution); }), 0);
  for (const Cut& cut : cuts) offsets.push_back(offsets.back() + cut.count);
  const size_t total = static_cast<size_t>(offsets.back());
  const Candidates candidates{offsets, std::span(ids).first(total), std::span(values).first(total),
                              std::span(weights).first(total)};
  EXPECT_EQ(
      AllocationsOf([&] { Collect(input, cuts, CandidateOrder::kByRank, candidates, execution); }),
      0);
  for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
    EXPECT_EQ(AllocationsOf([&] { Draw(input, method, cuts, results, execution); }), 0);
    EXPECT_EQ(AllocationsOf([&] { Sample(input, method, results, execution); }), 0);
    EXPECT_EQ(AllocationsOf([&] {
                SampleShards({shards, {&params, 1}, {&key, 1}, {}}, method, results, {});
              }),
              0);
  }
  EXPECT_EQ(AllocationsOf([&] { SelectShards({shards, {&params, 1}, {&key, 1}, {}}, cuts, {}); }),
            0);
  Sample(input, DrawMethod::kCdf, results, execution);
  const LogprobLists lists{20, std::span(ids).first(160), std::span(values).first(160)};
  EXPECT_EQ(AllocationsOf([&] {
              Logprobs({batch.view(), LogprobMode::kProcessedLogprobs, {&params, 1}}, results,
                       lists, execution);
            }),
            0);
  const Drafts certain{.first_row = first_row, .ids = draft_ids};
  Drafts given = certain;
  given.probabilities = Matrix(q);
  Drafts sluice_drafts = certain;
  sluice_drafts.model = input;
  sluice_drafts.model_cuts = cuts;
  for (const Drafts& drafts : {certain, given, sluice_drafts}) {
    EXPECT_EQ(AllocationsOf([&] {
                Verify(input, drafts, DraftMode::kReject, DrawMethod::kCdf, results, emitted,
                       execution);
              }),
              0);
  }
  EXPECT_EQ(AllocationsOf([&] {
              Topk({.scores = batch.view(), .k = 10}, std::span(ids).first(80),
                   std::span(values).first(80), statuses, execution);
            }),
            0);
  EXPECT_EQ(AllocationsOf([&] {
              Project({Matrix(batch)}, Matrix(hidden), {}, out.mutable_view(), {Backend::kRef});
            }),
            0);
  EXPECT_EQ(AllocationsOf([&] { Mask(batch.mutable_view(), cuts, execution); }), 0);
}

// Rows of every path: by planes, by a small bitmask, by the dense head, and without an answer.
TEST(Allocation, NoCertifiedHeadAllocates) {
  constexpr int32_t kVocab = 600;
  Random random(3);
  const Rows rows = MakeHead(HeadKind::kNormal, kVocab, 130, random);
  const Batch weight(rows);
  Rows states;
  for (const HiddenKind kind :
       {HiddenKind::kPeaked, HiddenKind::kPeaked, HiddenKind::kZero, HiddenKind::kNormal}) {
    states.push_back(MakeHidden(kind, rows, random));
  }
  states[3][0] = NAN;
  const Batch hidden(states);
  constexpr size_t kWords = (kVocab + 31) / 32;
  std::vector<int32_t> bitmask(4 * kWords, -1);
  std::fill_n(bitmask.begin() + kWords, kWords, 0b1010);
  const CertifiedInput input{Matrix(hidden), bitmask};
  std::vector<int32_t> ids(4 * 10);
  std::vector<float> logits(4 * 10);
  std::vector<RowStatus> statuses(4);
  std::vector<TokenResult> results(4);
  std::vector<CertifiedRow> paths(4);
  const NoiseKey key{1, 2, 3};
  for (const CertificateKind kind : {CertificateKind::kDither4, CertificateKind::kStrict}) {
    const CertifiedHead head({Matrix(weight)},
                             HeadPlanes::Build(Matrix(weight), {.kind = kind, .seed = 5}, {}));
    const Workspace top_workspace(head.TopKWorkspaceBytes(4, {Backend::kRef}));
    EXPECT_EQ(AllocationsOf([&] {
                head.TopK(input, {10, ids, logits, statuses}, paths,
                          {Backend::kRef, {}, top_workspace.span()});
              }),
              0);
    EXPECT_EQ(paths[0].path, CertifiedPath::kPlanes);
    EXPECT_EQ(paths[1].path, CertifiedPath::kAllowed);
    EXPECT_EQ(paths[2].path, CertifiedPath::kDense);
    EXPECT_EQ(paths[3].path, CertifiedPath::kNothing);
    const Workspace workspace(SampleFromHeadWorkspaceBytes(head, 4, {Backend::kRef}));
    for (const SelectParams& params :
         {SelectParams{}, SelectParams{.temperature = 0.0f}, SelectParams{.top_k = 5},
          SelectParams{.min_p = 0.5f}, SelectParams{.top_p = 0.9f}}) {
      for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
        EXPECT_EQ(AllocationsOf([&] {
                    SampleFromHead(head, input, {&params, 1}, {&key, 1}, {}, method, results, paths,
                                   {Backend::kRef, {}, workspace.span()});
                  }),
                  0);
      }
    }
    Sampler sampler({.vocab = kVocab, .max_requests = 4, .backend = Backend::kRef});
    std::vector<RequestHandle> requests;
    for (int r = 0; r < 4; ++r) {
      LiteralRequest request = RandomLiteralRequest(kVocab, random);
      request.params.top_k = 5;
      request.params.dry_multiplier = 1.0f;
      requests.push_back(AddTo(sampler, request));
    }
    EXPECT_EQ(AllocationsOf([&] {
                sampler.StepFromHead(head, input, requests, results, paths,
                                     {Backend::kRef, {}, workspace.span()});
                sampler.StepIdsFromHead(head, input, requests, std::span(ids).first(4), statuses,
                                        paths, {Backend::kRef, {}, workspace.span()});
              }),
              0);
  }
}

TEST(Allocation, NoStepAllocates) {
  constexpr int64_t kVocab = 50;
  Random random(2);
  Sampler sampler({.vocab = kVocab, .max_requests = 8});
  std::vector<LiteralRequest> literal;
  std::vector<StepRequest> requests;
  std::vector<std::vector<float>> rows;
  const std::vector<int32_t> drafts = {1, 2};
  const std::vector<int32_t> siblings = {-1, -1};
  const auto bitmask = RandomBitmask(kVocab, 3, random);
  const Batch q(std::vector(2, std::vector<float>(50, 0.02f)));
  const Batch draft_model(
      {MakeRow(RowKind::kMid, kVocab, random), MakeRow(RowKind::kMid, kVocab, random)});
  const SelectParams draft_params;
  const NoiseKey key;
  const SelectInput draft_input{draft_model.view(), {&draft_params, 1}, {&key, 1}};
  const std::vector<Cut> draft_cuts = Selected(draft_input).cuts;
  for (int i = 0; i < 8; ++i) {
    literal.push_back(RandomLiteralRequest(kVocab, random));
    literal.back().params.draft_mode = i % 2 == 0 ? DraftMode::kMatch : DraftMode::kReject;
    requests.push_back(
        {.request = AddTo(sampler, literal.back()), .drafts = drafts, .bitmask = bitmask});
    if (i >= 4) requests.back().parents = siblings;
    if (i % 3 == 1) requests.back().draft_probabilities = Matrix(q);
    if (i % 3 == 2) {
      requests.back().draft_model = draft_input;
      requests.back().draft_cuts = draft_cuts;
    }
    for (int r = 0; r < 3; ++r) rows.push_back(MakeRow(kAllRowKinds[i], kVocab, random));
  }
  const Batch batch(rows, DType::kF16);
  std::vector<TokenResult> tokens(24);
  std::vector<int32_t> emitted(8);
  std::vector<int32_t> ids(24 * 51);
  std::vector<float> values(24 * 51);
  std::vector<int32_t> kept(24 * 2);
  std::vector<CutMass> masses(24);
  Batch adjusted(std::vector(24, std::vector<float>(50)));
  const StepOutput output{.tokens = tokens,
                          .emitted = emitted,
                          .logprobs = {51, ids, values},
                          .kept = kept,
                          .masses = masses,
                          .adjusted = adjusted.mutable_view()};
  EXPECT_EQ(AllocationsOf([&] {
              for (int step = 0; step < 40; ++step) sampler.Step({batch.view(), requests}, output);
            }),
            0);
  EXPECT_GT(sampler.Tokens(requests[0].request).size(), literal[0].prompt.size());
  EXPECT_EQ(AllocationsOf([&] {
              sampler.Rollback(requests[0].request, 10);
              sampler.Accept(requests[0].request, drafts);
              sampler.Remove(requests[1].request);
            }),
            0);
}

TEST(Allocation, NoTokenOfARequestThatHasSeenTheWholeVocabularyAllocates) {
  Sampler sampler({.vocab = 50});
  const RequestHandle request = sampler.Add({.max_new_tokens = 256});
  std::vector<int32_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(AllocationsOf([&] {
              for (int i = 0; i < 5; ++i) sampler.Accept(request, all);
            }),
            0);
  EXPECT_EQ(sampler.Tokens(request).size(), 250u);
}

}  // namespace
}  // namespace sluice::test
