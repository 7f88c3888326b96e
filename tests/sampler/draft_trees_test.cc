// Steps with trees of drafts: `match` is the walk of steps of one row each, `reject` what
// docs/semantics-drafts.md says, written out in integers; chains are trees.
#include <gtest/gtest.h>

#include <set>

#include "sluice/sampler.hpp"
#include "tests/sampler/stepping.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

class DraftTrees : public BackendTest {
 protected:
  Sampler NewSampler(int64_t vocab) const {
    return Sampler({.vocab = vocab, .max_requests = 4, .backend = backend()});
  }
};

enum class Kind { kNone, kChain, kTree };
enum class Source { kCertain, kGiven, kSluice };

// What a step does with one request, with its memory.
struct Part {
  std::vector<int32_t> drafts;
  std::vector<int32_t> parents;
  std::vector<std::vector<float>> rows;
  std::vector<int32_t> bitmask;
  int32_t forced = -1;

  Part(Kind kind, int64_t vocab, int64_t most_drafts, Random& random) {
    auto id = [&] { return static_cast<int32_t>(random.Below(vocab)); };
    const int64_t count = kind == Kind::kNone ? 0 : random.Between(1, most_drafts);
    for (int64_t i = 0; i < count; ++i) drafts.push_back(id());
    if (kind == Kind::kTree) parents = RandomParents(count, random);
    for (int64_t node = 0; node <= count; ++node) {
      rows.push_back(MakeRow(kAllRowKinds[random.Below(8)], vocab, random));
      // Often a draft behind the node is on top, so that paths get long.
      for (int64_t i = node; i < count && random.Coin(0.7); ++i) {
        if (Parent(i) != node) continue;
        rows.back()[static_cast<size_t>(drafts[static_cast<size_t>(i)])] = 30.0f;
        if (random.Coin()) break;
      }
      if (random.Coin(0.03)) random.Pick(rows.back()) = std::numeric_limits<float>::quiet_NaN();
    }
    if (random.Coin(0.3)) bitmask = RandomBitmask(vocab, count + 1, random);
    if (random.Coin(0.1)) forced = id();
  }
  int64_t Parent(int64_t i) const {
    return parents.empty() ? i : parents[static_cast<size_t>(i)] + 1;
  }
  // The node of the first draft behind `node` that is this token; 0: none.
  size_t ChildOf(size_t node, int32_t token) const {
    for (size_t i = 0; i < drafts.size(); ++i) {
      const bool is_child = Parent(static_cast<int64_t>(i)) == static_cast<int64_t>(node);
      if (is_child && drafts[i] == token) return i + 1;
    }
    return 0;
  }
  std::span<const int32_t> Bitmask(size_t node, int64_t vocab) const {
    const size_t words = static_cast<size_t>((vocab + 31) / 32);
    if (bitmask.empty()) return {};
    return std::span(bitmask).subspan(node * words, words);
  }
  StepRequest For(RequestHandle handle) const {
    return {.request = handle,
            .drafts = drafts,
            .parents = parents,
            .bitmask = bitmask,
            .forced = forced};
  }
};

// A row of everything that a step tells of a token.
struct Told {
  TokenResult token;
  std::vector<int32_t> ids;
  std::vector<float> values;
  std::vector<int32_t> kept;
  CutMass mass;
};
Told ToldOf(const Stepped& step, size_t row, size_t width, int64_t vocab) {
  auto part = [row](const auto& all, size_t size) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(row * size);
    return std::vector(first, first + static_cast<std::ptrdiff_t>(size));
  };
  return {step.tokens[row], part(step.ids, width), part(step.values, width),
          part(step.kept, static_cast<size_t>((vocab + 31) / 32)), step.masses[row]};
}
void ExpectSame(const Told& actual, const Told& expected) {
  ASSERT_TRUE(SameBits(actual.token, expected.token))
      << ::testing::PrintToString(actual.token) << " instead of "
      << ::testing::PrintToString(expected.token);
  EXPECT_TRUE(SameSequence(actual.ids, expected.ids));
  EXPECT_TRUE(SameSequence(actual.values, expected.values));
  EXPECT_TRUE(SameSequence(actual.kept, expected.kept));
  EXPECT_EQ(actual.mass, expected.mass);
}

TEST_P(DraftTrees, MatchIsTheWalkOfStepsOfOneRowEach) {
  Random random(11);
  int64_t longest = 0, forks = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t vocab = random.Between(4, 40);
    const size_t width = static_cast<size_t>(1 + vocab);
    const int64_t most_drafts = round % 8 == 0 ? 64 : 9;
    Sampler sampler = NewSampler(vocab), by_hand = NewSampler(vocab);
    std::vector<RequestHandle> handles, hands;
    for (int i = 0; i < 4; ++i) {
      LiteralRequest request = RandomLiteralRequest(vocab, random);
      if (random.Coin(0.3)) request.params.temperature = 0.0f;
      handles.push_back(AddTo(sampler, request));
      hands.push_back(AddTo(by_hand, request));
    }
    for (int step = 0; step < 3; ++step) {
      std::vector<Part> parts;
      std::vector<StepRequest> requests;
      std::vector<std::vector<float>> rows;
      for (size_t i = 0; i < handles.size(); ++i) {
        const Kind kind = random.Coin(0.6)   ? Kind::kTree
                          : random.Coin(0.5) ? Kind::kChain
                                             : Kind::kNone;
        parts.emplace_back(kind, vocab, most_drafts, random);
      }
      for (size_t i = 0; i < handles.size(); ++i) {
        requests.push_back(parts[i].For(handles[i]));
        rows.insert(rows.end(), parts[i].rows.begin(), parts[i].rows.end());
      }
      const Batch batch(rows, dtype());
      const Stepped stepped = StepAll(sampler, batch.view(), requests, static_cast<int64_t>(width));
      size_t first = 0;
      for (size_t i = 0; i < handles.size(); ++i) {
        SCOPED_TRACE(testing::Message() << "round " << round << ", step " << step << ", " << i);
        const Part& part = parts[i];
        std::set<size_t> seen;
        size_t n = 0;
        int32_t emitted = 0;
        for (size_t node = 0; n == 0 || node > 0; ++n) {
          seen.insert(node);
          const Batch row({part.rows[node]}, dtype());
          const StepRequest one{.request = hands[i],
                                .bitmask = part.Bitmask(node, vocab),
                                .forced = node == 0 ? part.forced : -1};
          const Stepped alone =
              StepAll(by_hand, row.view(), {&one, 1}, static_cast<int64_t>(width));
          ExpectSame(ToldOf(stepped, first + n, width, vocab), ToldOf(alone, 0, width, vocab));
          const auto adjusted =
              std::span(stepped.adjusted)
                  .subspan((first + node) * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
          EXPECT_TRUE(SameSequence(adjusted, alone.adjusted));
          EXPECT_EQ(stepped.path[first + n], static_cast<int32_t>(node));
          emitted += alone.emitted[0];
          const size_t child = alone.tokens[0].id < 0 ? 0 : part.ChildOf(node, alone.tokens[0].id);
          forks += child > node + 1 ? 1 : 0;
          node = child;
          if (child == 0) {
            ++n;
            break;
          }
        }
        longest = std::max<int64_t>(longest, emitted);
        EXPECT_EQ(stepped.emitted[i], emitted);
        for (; n <= part.drafts.size(); ++n) {  // nothing is told of the others
          EXPECT_EQ(stepped.path[first + n], -1);
          EXPECT_TRUE(SameBits(stepped.tokens[first + n], TokenResult{}));
          EXPECT_EQ(stepped.masses[first + n], CutMass{});
          EXPECT_EQ(stepped.ids[(first + n) * width], -1);
        }
        for (size_t node = 0; node <= part.drafts.size(); ++node) {
          if (seen.contains(node)) continue;
          for (size_t id = 0; id < static_cast<size_t>(vocab); ++id) {
            EXPECT_EQ(stepped.adjusted[(first + node) * static_cast<size_t>(vocab) + id], 0.0f);
          }
        }
        EXPECT_TRUE(SameSequence(sampler.Tokens(handles[i]), by_hand.Tokens(hands[i])));
        first += part.rows.size();
      }
    }
  }
  EXPECT_GT(longest, 6);  // the test tests something
  EXPECT_GT(forks, 100);
}

// P or Q of a row, from its Cut, in units of 2^-40.
std::vector<uint64_t> Probabilities(const std::vector<float>& x, const Cut& cut, float scale) {
  float max = -semantics::Infinity();
  for (const float value : x) max = value > max ? value : max;
  std::vector<uint64_t> weights;
  uint64_t mass = 0;
  semantics::CutWalk walk(cut);
  for (const float value : x) {
    weights.push_back(walk.Keeps(value) ? semantics::Weight(value, max, scale) : 0);
    mass += weights.back();
  }
  for (uint64_t& weight : weights) {
    const auto reciprocal = mass == 0 ? 0 : (static_cast<semantics::uint128_t>(1) << 103) / mass;
    weight = static_cast<uint64_t>((reciprocal * weight) >> 63);
  }
  return weights;
}

struct Outcome {
  int32_t id;
  size_t node;  // that comes next; 0: none
  RowStatus status = RowStatus::kOk;
  uint32_t tries = 0;
};
// What a draft was drawn from.
struct Known {
  std::vector<uint64_t> q;
  RowStatus status = RowStatus::kOk;
};
// Siblings one after the other. p: of the row.
Outcome TryThem(std::vector<uint64_t> p, const Part& part, size_t node,
                const std::vector<Known>& known, const NoiseKey& key, int32_t first_kept) {
  uint32_t tries = 0;
  std::vector<uint64_t> rest;
  for (size_t i = 0; i < part.drafts.size(); ++i) {
    if (part.Parent(static_cast<int64_t>(i)) != static_cast<int64_t>(node)) continue;
    if (known[i].status != RowStatus::kOk) return {-1, 0, known[i].status};
    const std::vector<uint64_t>& q = known[i].q;
    if (tries > 0) {  // what is left, against its own sum
      semantics::uint128_t sum = 0;
      for (const uint64_t value : rest) sum += value;
      const semantics::uint128_t reciprocal = (static_cast<semantics::uint128_t>(1) << 103) / sum;
      for (size_t id = 0; id < p.size(); ++id) {
        p[id] = static_cast<uint64_t>((reciprocal * rest[id]) >> 63);
      }
    }
    const size_t draft = static_cast<size_t>(part.drafts[i]);
    const uint32_t u = semantics::Philox(key.seed, key.position, tries / 4, 2 | key.choice << 8, 0)
                           .word[tries % 4];
    ++tries;
    if (q[draft] > 0 && static_cast<semantics::uint128_t>(p[draft]) << 32 >=
                            static_cast<semantics::uint128_t>(uint64_t{u} + 1) * q[draft]) {
      return {part.drafts[i], i + 1, RowStatus::kOk, tries};
    }
    rest.clear();
    uint64_t sum = 0;
    for (size_t id = 0; id < p.size(); ++id) {
      rest.push_back(p[id] > q[id] ? p[id] - q[id] : 0);
      sum += rest.back();
    }
    if (sum == 0) return {first_kept, 0, RowStatus::kOk, tries};
  }
  uint64_t sum = 0;
  for (const uint64_t value : rest) sum += value;
  const semantics::Block block =
      semantics::Philox(key.seed, key.position, 0, 3 | key.choice << 8, 0);
  const uint64_t u = static_cast<uint64_t>(block.word[1]) << 32 | block.word[0];
  const uint64_t threshold =
      static_cast<uint64_t>((static_cast<semantics::uint128_t>(u) * sum) >> 64);
  uint64_t running = 0;
  for (size_t id = 0; id < rest.size(); ++id) {
    running += rest[id];
    if (running > threshold) return {static_cast<int32_t>(id), 0, RowStatus::kOk, tries};
  }
  return {-1, 0};
}

TEST_P(DraftTrees, RejectTriesSiblingsInOrderAgainstWhatIsLeft) {
  Random random(12);
  int64_t accepted_later = 0, recovered_later = 0, statuses = 0;
  for (int round = 0; round < 1500; ++round) {
    const int64_t vocab = random.Between(4, 30);
    const size_t n = static_cast<size_t>(vocab);
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    literal.params.draft_mode = DraftMode::kReject;
    literal.params.allowed_token_ids.reset();
    const Part part(round % 5 == 0 ? Kind::kChain : Kind::kTree, vocab, round % 20 == 0 ? 64 : 7,
                    random);
    const size_t count = part.drafts.size();
    const Source source = static_cast<Source>(round % 3);
    std::vector<std::vector<float>> given(count, std::vector<float>(n)), model_rows;
    for (auto& row : given) {
      for (float& q : row) q = static_cast<float>(random.Uniform() / static_cast<double>(n));
    }
    if (random.Coin(0.2)) random.Pick(random.Pick(given)) = 1.5f;
    for (size_t i = 0; i < count; ++i) {
      model_rows.push_back(part.rows[static_cast<size_t>(part.Parent(static_cast<int64_t>(i)))]);
      if (random.Coin()) random.Pick(model_rows.back()) += 1.0f;
    }
    // Ties at the boundaries of the draft model's Cut as well.
    const std::vector<SelectParams> model_params = [&] {
      std::vector<SelectParams> params;
      for (size_t i = 0; i < count; ++i) params.push_back(RandomSelectParams(vocab, random));
      return params;
    }();
    const DType model_dtype = random.Coin(0.2) ? DType::kF32 : dtype();
    const Batch model(model_rows, model_dtype), probabilities(given);
    const std::vector<NoiseKey> keys(count, literal.Key());
    const SelectInput model_input{model.view(), model_params, keys};
    const std::vector<Cut> cuts = Selected(model_input).cuts;

    Sampler sampler = NewSampler(vocab);
    StepRequest request = part.For(AddTo(sampler, literal));
    const LogitsView q_view = probabilities.view();
    if (source == Source::kGiven) {
      request.draft_probabilities = {q_view.data,   q_view.rows,  q_view.vocab,
                                     q_view.stride, q_view.dtype, q_view.device};
    } else if (source == Source::kSluice) {
      request.draft_model = model_input;
      request.draft_cuts = cuts;
    }
    const Batch batch(part.rows, dtype());
    const Stepped stepped = StepAll(sampler, batch.view(), {&request, 1});

    std::vector<Known> known(count);
    for (size_t i = 0; i < count; ++i) {
      std::vector<uint64_t>& q = known[i].q;
      q.assign(n, 0);
      q[static_cast<size_t>(part.drafts[i])] = uint64_t{1} << 40;
      if (source == Source::kGiven) {
        for (size_t id = 0; id < n; ++id) {
          q[id] = semantics::Fixed40(given[i][id]);
          if (given[i][id] > 1.0f) known[i].status = RowStatus::kBadParam;
        }
      } else if (source == Source::kSluice) {
        std::vector<float> x;
        for (int64_t id = 0; id < vocab; ++id) x.push_back(model.Get(static_cast<int64_t>(i), id));
        q = Probabilities(x, cuts[i], semantics::ScalesOf(model_params[i]).draw);
        known[i].status = cuts[i].status;
      }
    }

    size_t node = 0;
    size_t told = 0;
    int32_t emitted = 0;
    while (true) {
      SCOPED_TRACE(testing::Message() << "round " << round << ", node " << node);
      std::vector<float> values;
      for (int64_t id = 0; id < vocab; ++id) {
        values.push_back(batch.Get(static_cast<int64_t>(node), id));
      }
      const auto mask = part.Bitmask(node, vocab);
      const auto adjusted = literal.Adjusted(values, mask.empty() ? nullptr : mask.data(),
                                             node == 0 ? part.forced : -1);
      TokenResult expected = literal.Sampled(adjusted);
      size_t next = 0;
      bool has_children = false;
      for (size_t i = 0; i < count; ++i) {
        has_children =
            has_children || part.Parent(static_cast<int64_t>(i)) == static_cast<int64_t>(node);
      }
      const TokenResult& actual = stepped.tokens[told];
      EXPECT_EQ(stepped.path[told], static_cast<int32_t>(node));
      if (expected.status == RowStatus::kOk && has_children) {
        const SelectParams select = literal.params.Select();
        if (semantics::IsGreedy(select)) {
          next = part.ChildOf(node, expected.id);
        } else {
          const semantics::Row row{adjusted.data(), DType::kF32, vocab};
          const Outcome outcome =
              TryThem(Probabilities(adjusted, expected.cut, semantics::ScalesOf(select).draw), part,
                      node, known, literal.Key(), semantics::FirstKept(row, expected.cut));
          expected.id = outcome.id;
          next = outcome.node;
          if (outcome.status != RowStatus::kOk) {
            expected.status = outcome.status;
            expected.cut = semantics::CutOfStatus(outcome.status);
            ++statuses;
          }
          accepted_later += next > 0 && outcome.tries > 1 ? 1 : 0;
          recovered_later += next == 0 && outcome.tries > 1 ? 1 : 0;
        }
      }
      expected.logprob = actual.logprob;  // see sampler_test.cc
      expected.rank = actual.rank;
      ASSERT_TRUE(SameBits(actual, expected)) << ::testing::PrintToString(actual) << " instead of "
                                              << ::testing::PrintToString(expected);
      ++told;
      if (expected.id < 0) break;
      ++emitted;
      literal.output.push_back(expected.id);
      if (next == 0) break;
      node = next;
    }
    EXPECT_EQ(stepped.emitted[0], emitted);
    EXPECT_TRUE(SameSequence(sampler.Tokens(request.request).subspan(literal.prompt.size()),
                             literal.output));
  }
  EXPECT_GT(accepted_later, 20);  // the test tests something
  EXPECT_GT(recovered_later, 40);
  EXPECT_GT(statuses, 5);
}

TEST_P(DraftTrees, AChainIsATree) {
  Random random(13);
  for (int round = 0; round < 60; ++round) {
    const int64_t vocab = random.Between(4, 40);
    LiteralRequest literal = RandomLiteralRequest(vocab, random);
    if (random.Coin()) literal.params.draft_mode = DraftMode::kReject;
    Part part(Kind::kChain, vocab, 8, random);
    const Batch batch(part.rows, dtype());
    Sampler one = NewSampler(vocab), other = NewSampler(vocab);
    const StepRequest chain = part.For(AddTo(one, literal));
    const Stepped expected = StepAll(one, batch.view(), {&chain, 1}, 1 + vocab);
    for (size_t i = 0; i < part.drafts.size(); ++i) {
      part.parents.push_back(static_cast<int32_t>(i) - 1);
    }
    const StepRequest tree = part.For(AddTo(other, literal));
    const Stepped actual = StepAll(other, batch.view(), {&tree, 1}, 1 + vocab);
    EXPECT_TRUE(SameSequence(actual.tokens, expected.tokens));
    EXPECT_TRUE(SameSequence(actual.values, expected.values));
    EXPECT_TRUE(SameSequence(actual.adjusted, expected.adjusted));
    EXPECT_TRUE(SameSequence(actual.path, expected.path));
    EXPECT_EQ(actual.emitted, expected.emitted);
  }
}

TEST_P(DraftTrees, TheFirstOfEqualSiblingsWins) {
  const std::vector<float> row = {0.0f, 1.0f, 0.0f, 0.0f};
  const Batch rows({row, row, row, row, row}, dtype());
  const std::vector<int32_t> drafts = {3, 1, 1, 0};
  const std::vector<int32_t> parents = {-1, -1, -1, 2};
  for (const DraftMode mode : {DraftMode::kMatch, DraftMode::kReject}) {
    Sampler sampler = NewSampler(4);
    SamplingParams params{.temperature = 0.0f};
    params.draft_mode = mode;
    const StepRequest request{
        .request = sampler.Add({.params = params}), .drafts = drafts, .parents = parents};
    const Stepped stepped = StepAll(sampler, rows.view(), {&request, 1});
    EXPECT_EQ(stepped.emitted[0], 2);
    EXPECT_EQ(stepped.path, (std::vector<int32_t>{0, 2, -1, -1, -1}));
    EXPECT_EQ(stepped.tokens[1].id, 1);
    EXPECT_EQ(stepped.tokens[2].id, -1);
  }
}

TEST_P(DraftTrees, AdjustedValuesMayTakeThePlaceOfTheLogits) {
  Random random(14);
  for (int round = 0; round < 60; ++round) {
    const int64_t vocab = random.Between(4, 20);
    const LiteralRequest literal = RandomLiteralRequest(vocab, random);
    const Part part(Kind::kTree, vocab, 12, random);
    Batch batch(part.rows, DType::kF32);
    Sampler one = NewSampler(vocab), other = NewSampler(vocab);
    const StepRequest beside = part.For(AddTo(one, literal));
    const Stepped expected = StepAll(one, batch.view(), {&beside, 1});
    const StepRequest inside = part.For(AddTo(other, literal));
    std::vector<float> memory;
    for (const auto& row : part.rows) memory.insert(memory.end(), row.begin(), row.end());
    const int64_t rows = std::ssize(part.rows);
    std::vector<TokenResult> tokens(part.rows.size());
    std::vector<int32_t> emitted(1);
    other.Step(
        {{memory.data(), rows, vocab, vocab}, {&inside, 1}},
        {.tokens = tokens, .emitted = emitted, .adjusted = {memory.data(), rows, vocab, vocab}});
    for (size_t r = 0; r < tokens.size(); ++r) {
      EXPECT_EQ(tokens[r].id, expected.tokens[r].id);
      EXPECT_EQ(tokens[r].status, expected.tokens[r].status);
    }
  }
}

SLUICE_FOR_EACH_BACKEND(DraftTrees);

}  // namespace
}  // namespace sluice::test
