// Draft verification: `match` never changes the output, `reject` keeps the law of the target.
#include "sluice/verify.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "semantics/draw/draft.h"
#include "semantics/temperature.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/params.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Verdicts {
  std::vector<TokenResult> results;
  std::vector<int32_t> emitted;
};

Verdicts Verified(const SelectInput& target, const Drafts& drafts, DraftMode mode,
                  DrawMethod method, const Execution& how = {Backend::kRef}) {
  const Workspace workspace(VerifyWorkspaceBytes(target.logits, how));
  Verdicts verdicts{std::vector<TokenResult>(drafts.ids.size()),
                    std::vector<int32_t>(drafts.first_row.size() - 1)};
  Verify(target, drafts, mode, method, verdicts.results, verdicts.emitted,
         {how.backend, how.parallel, workspace.span()});
  return verdicts;
}

MatrixView Probabilities(const Batch& batch) {
  const LogitsView view = batch.view();
  return {view.data, view.rows, view.vocab, view.stride, view.dtype, view.device};
}

// Requests with 0 to 4 drafts each; the rows of a request lie at consecutive positions.
struct Requests {
  std::vector<std::vector<float>> rows;
  std::vector<SelectParams> params;
  std::vector<NoiseKey> keys;
  std::vector<int64_t> first_row = {0};

  Requests(int64_t vocab, int count, Random& random) {
    for (int i = 0; i < count; ++i) {
      const SelectParams own = RandomSelectParams(vocab, random);
      NoiseKey key{random.Bits(), static_cast<uint32_t>(random.Below(100)), 0};
      const int64_t drafts = i % 5;
      for (int64_t d = 0; d <= drafts; ++d, ++key.position) {
        rows.push_back(MakeRow(kAllRowKinds[static_cast<size_t>(random.Below(8))], vocab, random));
        params.push_back(own);
        keys.push_back(key);
      }
      first_row.push_back(static_cast<int64_t>(rows.size()));
    }
  }
};

class VerifyMatch : public BackendTest {};

TEST_P(VerifyMatch, EmitsTheTokensThatNoDraftsWouldGive) {
  Random random(1);
  const Requests requests(60, 40, random);
  const Batch batch(requests.rows, dtype());
  const SelectInput target{batch.view(), requests.params, requests.keys};
  for (const DrawMethod method : {DrawMethod::kGumbel, DrawMethod::kCdf}) {
    const auto undrafted = Sampled(target, method, backend());
    for (const double share_of_right : {0.0, 0.5, 0.9, 1.0}) {
      std::vector<int32_t> ids;
      for (const TokenResult& result : undrafted) {
        const int32_t wrong = static_cast<int32_t>((result.id + 1 + random.Below(59)) % 60);
        ids.push_back(random.Coin(share_of_right) ? result.id : wrong);
      }
      const Drafts drafts{.first_row = requests.first_row, .ids = ids};
      const auto verdicts = Verified(target, drafts, DraftMode::kMatch, method, {backend()});
      for (size_t r = 0; r + 1 < requests.first_row.size(); ++r) {
        const size_t first = static_cast<size_t>(requests.first_row[r]);
        const size_t last = static_cast<size_t>(requests.first_row[r + 1]) - 1;
        size_t end = first;  // the first row whose draft is wrong, or the bonus row
        while (end < last && ids[end] == undrafted[end].id) ++end;
        EXPECT_EQ(verdicts.emitted[r], static_cast<int32_t>(end - first + 1));
        for (size_t row = first; row <= last; ++row) {
          const TokenResult expected = row <= end ? undrafted[row] : TokenResult{};
          EXPECT_TRUE(SameBits(verdicts.results[row], expected)) << row;
        }
      }
    }
  }
}

class VerifyReject : public BackendTest {};

// Definition and arithmetic once more, over whole distributions.
struct Reference {
  bool accepted;
  int32_t id;

  Reference(const std::vector<uint64_t>& p, const std::vector<uint64_t>& q, int32_t draft,
            const NoiseKey& key, int32_t first) {
    const size_t d = static_cast<size_t>(draft);
    const uint64_t u = semantics::Uniform32(key, semantics::Stream::kAcceptance);
    const semantics::uint128_t needed = semantics::uint128_t{u + 1} * q[d];
    accepted = q[d] > 0 && (semantics::uint128_t{p[d]} << 32) >= needed;
    id = accepted ? draft : first;
    if (accepted) return;
    semantics::uint128_t mass = 0;
    for (size_t i = 0; i < p.size(); ++i) mass += p[i] > q[i] ? p[i] - q[i] : 0;
    if (mass == 0) return;
    const uint64_t uniform = semantics::Uniform64(key, semantics::Stream::kRecovered);
    semantics::uint128_t left = (mass * uniform) >> 64;
    for (size_t i = 0; i < p.size(); ++i) {
      const uint64_t rest = p[i] > q[i] ? p[i] - q[i] : 0;
      if (left < rest) {
        id = static_cast<int32_t>(i);
        return;
      }
      left -= rest;
    }
  }
};

// P of every token, and the first kept one in the total order.
std::vector<uint64_t> Probabilities40(const Batch& batch, int64_t r, const Cut& cut,
                                      const SelectParams& params, int32_t* first) {
  const std::vector<int32_t> kept = KeptIds(batch.row(r), {&cut, 1})[0];
  float max = kMasked;
  for (int64_t id = 0; id < batch.view().vocab; ++id) max = std::max(max, batch.Get(r, id));
  std::vector<uint64_t> weights(static_cast<size_t>(batch.view().vocab));
  semantics::uint128_t mass = 0;
  *first = kept[0];
  for (const int32_t id : kept) {
    const float scale = semantics::ScalesOf(params).draw;
    weights[static_cast<size_t>(id)] = semantics::Weight(batch.Get(r, id), max, scale);
    mass += weights[static_cast<size_t>(id)];
    if (batch.Get(r, id) > batch.Get(r, *first)) *first = id;
  }
  if (mass == 0) return weights;
  const semantics::uint128_t reciprocal = (semantics::uint128_t{1} << 103) / mass;
  for (uint64_t& w : weights) w = static_cast<uint64_t>((reciprocal * w) >> 63);
  return weights;
}

TEST_P(VerifyReject, EqualsTheDefinitionForEveryKindOfDraft) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    const int64_t vocab = random.Coin() ? random.Between(1, 40) : random.Between(41, 400);
    const size_t n = static_cast<size_t>(vocab);
    // One request, one draft; the target's and the draft's row are alike now and then.
    const std::vector<float> row = MakeRow(RowKind::kFewDistinct, vocab, random);
    const Batch target({row, row}, dtype());
    const Batch draft_model({random.Coin(0.3) ? row : MakeRow(RowKind::kNormal, vocab, random),
                             std::vector<float>(n, 0.0f)},
                            dtype());
    const SelectParams params = RandomSelectParams(vocab, random);
    const SelectParams draft_params = RandomSelectParams(vocab, random);
    const std::vector<NoiseKey> keys = {{random.Bits(), 5, 0}, {random.Bits(), 6, 0}};
    const SelectInput input{target.view(), {&params, 1}, keys};
    const SelectInput draft_input{draft_model.view(), {&draft_params, 1}, keys};
    const std::vector<Cut> draft_cuts = Selected(draft_input, backend()).cuts;
    const Cut cut = Selected(input, backend()).cuts[0];
    int32_t first = -1;
    int32_t ignored = -1;
    const auto p = Probabilities40(target, 0, cut, params, &first);

    std::vector<float> given(n);
    for (float& q : given) q = random.Coin(0.3) ? 0.0f : static_cast<float>(random.Uniform());
    const Batch probabilities({given, std::vector<float>(n, kNan)});  // a bonus row is not read
    const int32_t draft = static_cast<int32_t>(random.Below(vocab));
    const std::vector<int32_t> ids = {draft, -1};
    const std::vector<int64_t> first_row = {0, 2};

    std::vector<uint64_t> q_certain(n);
    q_certain[static_cast<size_t>(draft)] = semantics::kFullWeight;
    std::vector<uint64_t> q_given;
    for (const float q : given) q_given.push_back(semantics::Fixed40(q));
    const auto q_sluice = Probabilities40(draft_model, 0, draft_cuts[0], draft_params, &ignored);

    const std::pair<Drafts, std::vector<uint64_t>> sources[] = {
        {{.first_row = first_row, .ids = ids}, q_certain},
        {{.first_row = first_row, .ids = ids, .probabilities = Probabilities(probabilities)},
         q_given},
        {{.first_row = first_row, .ids = ids, .model = draft_input, .model_cuts = draft_cuts},
         q_sluice},
    };
    const TokenResult bonus = Sampled(input, DrawMethod::kGumbel, backend())[1];
    for (const auto& [drafts, q] : sources) {
      Reference expected(p, q, draft, keys[0], first);
      if (params.temperature == 0.0f) {  // a greedy row accepts its argmax alone
        expected.accepted = draft == first;
        expected.id = first;
      }
      const auto verdicts =
          Verified(input, drafts, DraftMode::kReject, DrawMethod::kGumbel, {backend()});
      EXPECT_EQ(verdicts.results[0].id, expected.id);
      EXPECT_EQ(verdicts.results[0].status, RowStatus::kOk);
      EXPECT_TRUE(SameBits(verdicts.results[0].cut, cut));
      EXPECT_EQ(verdicts.emitted[0], expected.accepted ? 2 : 1);
      const TokenResult behind = expected.accepted ? bonus : TokenResult{};
      EXPECT_TRUE(SameBits(verdicts.results[1], behind));
    }
  }
}

TEST_P(VerifyReject, EveryDraftIsComparedWithItsOwnRows) {
  Random random(5);
  int64_t accepted = 0;
  for (int round = 0; round < 100; ++round) {
    const Requests requests(12, 5, random);
    const size_t rows = requests.rows.size();
    const Batch batch(requests.rows, dtype());
    const SelectInput target{batch.view(), requests.params, requests.keys};
    // The draft model: nearly the target, with parameters of its own a row.
    std::vector<std::vector<float>> draft_rows = requests.rows;
    std::vector<SelectParams> draft_params;
    for (auto& row : draft_rows) {
      random.Pick(row) += 1.0f;
      draft_params.push_back({.top_k = static_cast<int32_t>(random.Between(3, 12))});
    }
    const Batch draft_model(draft_rows, dtype());
    const Batch given(std::vector(rows, std::vector<float>(12, 0.08f)));
    const SelectInput draft_input{draft_model.view(), draft_params, requests.keys};
    std::vector<int32_t> ids;
    std::vector<Cut> cuts;
    for (const TokenResult& result : Sampled(draft_input, DrawMethod::kCdf, backend())) {
      ids.push_back(result.id);
      cuts.push_back(result.cut);
    }
    for (const bool sluice : {false, true}) {
      // The drafts of rows [first, first + count).
      auto drafts_of = [&](std::span<const int64_t> first_row, size_t first, size_t count) {
        Drafts drafts{.first_row = first_row, .ids = std::span(ids).subspan(first, count)};
        if (sluice) {
          drafts.model = draft_input;
          drafts.model.logits.data = draft_model.view().Row(static_cast<int64_t>(first));
          drafts.model.logits.rows = static_cast<int64_t>(count);
          drafts.model.params = draft_input.params.subspan(first, count);
          drafts.model.keys = draft_input.keys.subspan(first, count);
          drafts.model_cuts = std::span(cuts).subspan(first, count);
        } else {
          drafts.probabilities = Probabilities(given);
          drafts.probabilities.data = given.view().Row(static_cast<int64_t>(first));
          drafts.probabilities.rows = static_cast<int64_t>(count);
        }
        return drafts;
      };
      const auto all = Verified(target, drafts_of(requests.first_row, 0, rows), DraftMode::kReject,
                                DrawMethod::kCdf, {backend()});
      for (size_t r = 0; r + 1 < requests.first_row.size(); ++r) {
        const size_t first = static_cast<size_t>(requests.first_row[r]);
        const size_t last = static_cast<size_t>(requests.first_row[r + 1]) - 1;
        bool goes_on = true;
        for (size_t row = first; row < last && goes_on; ++row) {
          // This draft alone, the row behind it as its bonus row.
          SelectInput two = target;
          two.logits.data = batch.view().Row(static_cast<int64_t>(row));
          two.logits.rows = 2;
          two.params = target.params.subspan(row, 2);
          two.keys = target.keys.subspan(row, 2);
          const std::vector<int64_t> one_request = {0, 2};
          const auto one = Verified(two, drafts_of(one_request, row, 2), DraftMode::kReject,
                                    DrawMethod::kCdf, {backend()});
          EXPECT_TRUE(SameBits(all.results[row], one.results[0])) << row;
          goes_on = one.emitted[0] == 2;
          accepted += goes_on ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(accepted, 300);
}

TEST_P(VerifyReject, GreedyAcceptsTheArgmaxAndNothingElse) {
  const Batch batch({{0.0f, 3.0f, 3.0f, 2.0f}, {9.0f, 0.0f, 0.0f, 0.0f}}, dtype());
  const Batch half({std::vector<float>(4, 0.5f), std::vector<float>(4, 0.5f)});
  const SelectParams params{.temperature = 0.0f};
  const std::vector<int64_t> first_row = {0, 2};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const NoiseKey key{seed, 0, 0};
    for (int32_t draft = 0; draft < 4; ++draft) {
      const std::vector<int32_t> ids = {draft, -1};
      for (const MatrixView& q : {MatrixView{}, Probabilities(half)}) {
        const auto verdicts = Verified({batch.view(), {&params, 1}, {&key, 1}},
                                       {.first_row = first_row, .ids = ids, .probabilities = q},
                                       DraftMode::kReject, DrawMethod::kCdf, {backend()});
        EXPECT_EQ(verdicts.results[0].id, 1);
        EXPECT_EQ(verdicts.results[1].id, draft == 1 ? 0 : -1);
        EXPECT_EQ(verdicts.emitted[0], draft == 1 ? 2 : 1);
      }
    }
  }
}

TEST_P(VerifyReject, NeverAcceptsWhatTheTargetMasksOrTheDraftCannotGive) {
  const Batch batch({{0.0f, kMasked, 1.0f}, {0.0f, 0.0f, 0.0f}}, dtype());
  const Batch certain({{0.0f, 1.0f, 0.0f}, {0.0f, 0.0f, 0.0f}});
  const SelectParams params;
  const std::vector<int64_t> first_row = {0, 2};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const NoiseKey key{seed, 0, 0};
    for (const int32_t draft : {0, 1}) {  // 0 has q = 0, 1 is masked
      const std::vector<int32_t> ids = {draft, -1};
      const auto verdicts =
          Verified({batch.view(), {&params, 1}, {&key, 1}},
                   {.first_row = first_row, .ids = ids, .probabilities = Probabilities(certain)},
                   DraftMode::kReject, DrawMethod::kGumbel, {backend()});
      EXPECT_EQ(verdicts.emitted[0], 1);
      EXPECT_NE(verdicts.results[0].id, 1);
    }
  }
}

TEST_P(VerifyReject, AProbabilityThatIsNoneIsTheRowsBadParam) {
  Random random(3);
  const std::vector<float> row = {0.0f, 0.0f, 0.0f};
  const Batch batch({row, row, row, row}, dtype());
  const SelectParams params;
  const NoiseKey key{1, 2, 3};
  const std::vector<int64_t> first_row = {0, 2, 4};
  const std::vector<int32_t> ids = {0, -1, 0, -1};
  for (const float bad : {kNan, 1.5f, -0.25f, std::numeric_limits<float>::infinity()}) {
    const Batch q({{0.5f, 0.5f, bad}, row, {1.0f, 0.0f, 0.0f}, row});
    const auto verdicts =
        Verified({batch.view(), {&params, 1}, {&key, 1}},
                 {.first_row = first_row, .ids = ids, .probabilities = Probabilities(q)},
                 DraftMode::kReject, DrawMethod::kGumbel, {backend()});
    EXPECT_EQ(verdicts.results[0].status, RowStatus::kBadParam);
    EXPECT_EQ(verdicts.results[0].id, -1);
    EXPECT_EQ(verdicts.emitted[0], 0);
    EXPECT_TRUE(SameBits(verdicts.results[1], TokenResult{}));
    EXPECT_EQ(verdicts.results[2].status, RowStatus::kOk);
    EXPECT_GE(verdicts.emitted[1], 1);
  }
}

// Of 200 equal tokens the first 100 are kept. The draft's own probability is so small that it is
// accepted if it has any in the target.
TEST_P(VerifyReject, ADraftAmongTiesIsAcceptedWhenTheCutKeepsIt) {
  const Batch batch({std::vector<float>(200), std::vector<float>(200)}, dtype());
  const SelectParams params{.top_k = 100};
  const NoiseKey key{1, 2, 3};
  const std::vector<int64_t> first_row = {0, 2};
  const Batch q({std::vector<float>(200, 0x1p-38f), std::vector<float>(200)});
  for (const int32_t draft : {0, 63, 64, 99, 100, 127, 128, 150, 199}) {
    const std::vector<int32_t> ids = {draft, -1};
    const auto verdicts =
        Verified({batch.view(), {&params, 1}, {&key, 1}},
                 {.first_row = first_row, .ids = ids, .probabilities = Probabilities(q)},
                 DraftMode::kReject, DrawMethod::kGumbel, {backend()});
    EXPECT_EQ(verdicts.emitted[0], draft < 100 ? 2 : 1) << draft;
  }
}

TEST_P(VerifyReject, AProbabilityThatIsNoneIsFoundAnywhere) {
  const Batch batch({std::vector<float>(200), std::vector<float>(200)}, dtype());
  const SelectParams params;
  const NoiseKey key{1, 2, 3};
  const std::vector<int64_t> first_row = {0, 2};
  const std::vector<int32_t> ids = {0, -1};
  for (const size_t place : {0u, 17u, 63u, 64u, 191u, 192u, 199u}) {
    for (const float bad : {kNan, 1.00001f, -0x1p-140f}) {
      Batch q({std::vector<float>(200, 0.0f), std::vector<float>(200, kNan)});
      q.Set(0, static_cast<int64_t>(place), bad);
      const auto verdicts =
          Verified({batch.view(), {&params, 1}, {&key, 1}},
                   {.first_row = first_row, .ids = ids, .probabilities = Probabilities(q)},
                   DraftMode::kReject, DrawMethod::kGumbel, {backend()});
      EXPECT_EQ(verdicts.results[0].status, RowStatus::kBadParam) << place << " " << bad;
    }
  }
}

TEST_P(VerifyReject, AStatusEndsTheTokensOfItsRequestAlone) {
  // Greedy, and every draft is right: but for the NaN each request would emit three tokens.
  const std::vector<float> good = {0.0f, 5.0f, 0.0f};
  const Batch batch({good, {kNan, 5.0f, 0.0f}, good, good, good, good}, dtype());
  const SelectParams params{.temperature = 0.0f};
  const NoiseKey key{1, 2, 3};
  const std::vector<int64_t> first_row = {0, 3, 6};
  const std::vector<int32_t> ids(6, 1);
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    const auto verdicts =
        Verified({batch.view(), {&params, 1}, {&key, 1}}, {.first_row = first_row, .ids = ids},
                 mode, DrawMethod::kGumbel, {backend()});
    EXPECT_EQ(verdicts.emitted, (std::vector<int32_t>{1, 3}));
    EXPECT_EQ(verdicts.results[0].id, 1);
    EXPECT_EQ(verdicts.results[1].status, RowStatus::kNanInput);
    EXPECT_TRUE(SameBits(verdicts.results[2], TokenResult{}));
  }
}

TEST_P(VerifyReject, RunsOnAnyParallelFor) {
  Random random(4);
  const Requests requests(30, 50, random);
  const Batch batch(requests.rows, dtype());
  std::vector<int32_t> ids;
  for (size_t i = 0; i < requests.rows.size(); ++i) {
    ids.push_back(static_cast<int32_t>(random.Below(30)));
  }
  const SelectInput target{batch.view(), requests.params, requests.keys};
  const Drafts drafts{.first_row = requests.first_row, .ids = ids};
  auto backwards = [](void*, int64_t count, ParallelFor::Task task, void* state) {
    for (int64_t i = count - 1; i >= 0; --i) task(state, i, static_cast<int>(i % 3));
  };
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    const auto serial = Verified(target, drafts, mode, DrawMethod::kCdf, {backend()});
    const auto parallel =
        Verified(target, drafts, mode, DrawMethod::kCdf, {backend(), {3, nullptr, backwards}});
    EXPECT_TRUE(SameSequence(parallel.results, serial.results));
    EXPECT_EQ(parallel.emitted, serial.emitted);
  }
}

TEST(AcceptsDraft, ComparesTheQuotientWithTheUniform) {
  auto accepts = [](float p, float q, double u) {
    return semantics::AcceptsDraft(semantics::Fixed40(p), semantics::Fixed40(q),
                                   static_cast<uint32_t>(u * 4294967296.0));
  };
  EXPECT_TRUE(accepts(0.3f, 0.5f, 0.6));
  EXPECT_FALSE(accepts(0.3f, 0.5f, 0.61));
  EXPECT_TRUE(accepts(0.5f, 0.5f, 0.9999999998));
  EXPECT_TRUE(accepts(1e-12f, 1e-12f, 0.9999999998));
  EXPECT_FALSE(accepts(0.0f, 1e-12f, 0.0));
  EXPECT_FALSE(accepts(0.0f, 0.0f, 0.0));
  EXPECT_FALSE(accepts(1.0f, 0.0f, 0.0));
  // Exactly 3/5: (U + 1) * 5 <= 3 * 2^32 up to U + 1 = 2576980377.
  EXPECT_TRUE(semantics::AcceptsDraft(3, 5, 2576980376u));
  EXPECT_FALSE(semantics::AcceptsDraft(3, 5, 2576980377u));
}

SLUICE_FOR_EACH_BACKEND(VerifyMatch);
SLUICE_FOR_EACH_BACKEND(VerifyReject);

}  // namespace
}  // namespace sluice::test
