// Sequences of a Decoder: whatever was forked, truncated, removed or refused before, a sequence has
// the bits of a fresh one with its tokens, and takes the pages that it needs.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/model/fixture.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"
#include "tests/support/first_difference.h"
#include "tests/support/random.h"

namespace sluice::test {
namespace {

std::vector<int32_t> AnyTokens(const Model& model, int64_t count, Random& random) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& id : tokens) id = static_cast<int32_t>(random.Below(model.info().vocab));
  return tokens;
}

// One more chunk and its last hidden state.
std::vector<float> Step(Decoder& decoder, SequenceHandle sequence,
                        std::span<const int32_t> tokens) {
  std::vector<float> hidden(static_cast<size_t>(decoder.model().info().dim));
  const DecodeChunk chunk{sequence, tokens};
  decoder.Forward({&chunk, 1}, hidden);
  return hidden;
}

// The last hidden state of a fresh sequence with these tokens.
std::vector<float> Fresh(const Model& model, std::span<const int32_t> tokens) {
  Decoder decoder(model, {.cache_tokens = kFixtureTokens});
  return Step(decoder, decoder.Add(), tokens);
}

// The models whose layers differ: windows, both kinds of layers, none of it.
class SequenceBits : public testing::TestWithParam<const char*> {
 protected:
  SequenceBits() : model_(OpenFixture(GetParam())), decoder_(model_, kOptions) {}

  static constexpr DecoderOptions kOptions = {.max_sequences = 4, .cache_tokens = 16 * 16};
  Model model_;
  Decoder decoder_;
  Random random_{3};
};
INSTANTIATE_TEST_SUITE_P(All, SequenceBits, testing::Values("llama3", "mistral", "gemma2"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(SequenceBits, AForkIsAFreshSequenceAndLeavesItsParentAlone) {
  const std::vector<int32_t> prompt = AnyTokens(model_, 40, random_);
  for (const int64_t length : {0, 1, 15, 16, 17, 31, 32, 33, 40}) {
    const SequenceHandle parent = decoder_.Add();
    Step(decoder_, parent, prompt);
    const SequenceHandle fork = decoder_.Fork(parent, length);
    EXPECT_EQ(decoder_.Length(fork), length);

    std::vector<int32_t> forked(prompt.begin(), prompt.begin() + length);
    const std::vector<int32_t> more = AnyTokens(model_, 20, random_);
    forked.insert(forked.end(), more.begin(), more.end());
    EXPECT_TRUE(SameSequence(Step(decoder_, fork, more), Fresh(model_, forked)));

    std::vector<int32_t> continued = prompt;
    const std::vector<int32_t> other = AnyTokens(model_, 20, random_);
    continued.insert(continued.end(), other.begin(), other.end());
    EXPECT_TRUE(SameSequence(Step(decoder_, parent, other), Fresh(model_, continued)));

    // What they shared outlives either.
    decoder_.Remove(parent);
    forked.push_back(1);
    EXPECT_TRUE(SameSequence(Step(decoder_, fork, {{1}}), Fresh(model_, forked)));
    decoder_.Remove(fork);
    EXPECT_EQ(decoder_.FreePages(), 16);
  }
}

TEST_P(SequenceBits, ATruncatedSequenceIsAFreshOne) {
  const std::vector<int32_t> prompt = AnyTokens(model_, 50, random_);
  for (const int64_t length : {0, 1, 16, 17, 32, 49, 50}) {
    const SequenceHandle sequence = decoder_.Add();
    Step(decoder_, sequence, prompt);
    decoder_.Truncate(sequence, length);
    EXPECT_EQ(decoder_.Length(sequence), length);
    EXPECT_EQ(decoder_.FreePages(), 16 - (length + 15) / 16);

    std::vector<int32_t> tokens(prompt.begin(), prompt.begin() + length);
    const std::vector<int32_t> more = AnyTokens(model_, 30, random_);
    tokens.insert(tokens.end(), more.begin(), more.end());
    EXPECT_TRUE(SameSequence(Step(decoder_, sequence, more), Fresh(model_, tokens)));
    decoder_.Remove(sequence);
  }
}

// Two forks that share a page not yet full, in one batch.
TEST_P(SequenceBits, ForksMayGoOnInOneBatch) {
  const std::vector<int32_t> prompt = AnyTokens(model_, 23, random_);
  const SequenceHandle parent = decoder_.Add();
  Step(decoder_, parent, prompt);
  const SequenceHandle forks[] = {parent, decoder_.Fork(parent, 23), decoder_.Fork(parent, 20)};
  std::vector<DecodeChunk> chunks;
  std::vector<float> expected;
  std::vector<std::vector<int32_t>> more;
  for (const int64_t size : {4, 1, 30}) more.push_back(AnyTokens(model_, size, random_));
  for (size_t i = 0; i < 3; ++i) {
    chunks.push_back({forks[i], more[i]});
    std::vector<int32_t> tokens(prompt.begin(), prompt.begin() + decoder_.Length(forks[i]));
    tokens.insert(tokens.end(), more[i].begin(), more[i].end());
    const std::vector<float> fresh = Fresh(model_, tokens);
    expected.insert(expected.end(), fresh.begin(), fresh.end());
  }
  std::vector<float> hidden(expected.size());
  decoder_.Forward(chunks, hidden);
  EXPECT_TRUE(SameSequence(hidden, expected));
}

// Any calls in any order, against what the sequences should hold.
TEST_P(SequenceBits, AnyCallsLeaveTheTokensTheySay) {
  struct Live {
    SequenceHandle handle;
    std::vector<int32_t> tokens;
  };
  std::vector<Live> live;
  for (int operation = 0; operation < 300; ++operation) {
    const int64_t choice = random_.Below(10);
    if (live.empty() || (choice == 0 && live.size() < 4)) {
      live.push_back({decoder_.Add(), {}});
      continue;
    }
    const size_t at = static_cast<size_t>(random_.Below(std::ssize(live)));
    const int64_t length = std::ssize(live[at].tokens);
    if (choice == 1 && live.size() < 4) {
      const int64_t kept = random_.Between(0, length);
      const SequenceHandle fork = decoder_.Fork(live[at].handle, kept);
      live.push_back({fork, {live[at].tokens.begin(), live[at].tokens.begin() + kept}});
    } else if (choice == 2) {
      decoder_.Remove(live[at].handle);
      EXPECT_THROW(decoder_.Length(live[at].handle), Error);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (choice == 3) {
      const int64_t kept = random_.Between(0, length);
      decoder_.Truncate(live[at].handle, kept);
      live[at].tokens.resize(static_cast<size_t>(kept));
    } else {
      const int64_t most = std::min<int64_t>(30, kFixtureTokens - length);
      const std::vector<int32_t> more = AnyTokens(model_, random_.Between(1, most), random_);
      const int64_t free = decoder_.FreePages();
      const int64_t pages = decoder_.PagesFor(live[at].handle, std::ssize(more));
      if (pages > free) {
        EXPECT_THROW(Step(decoder_, live[at].handle, more), Error);
        EXPECT_EQ(decoder_.FreePages(), free);
        continue;
      }
      const std::vector<float> hidden = Step(decoder_, live[at].handle, more);
      EXPECT_EQ(decoder_.FreePages(), free - pages);
      live[at].tokens.insert(live[at].tokens.end(), more.begin(), more.end());
      ASSERT_TRUE(SameSequence(hidden, Fresh(model_, live[at].tokens))) << "call " << operation;
    }
    for (const Live& one : live) {
      ASSERT_EQ(decoder_.Length(one.handle), std::ssize(one.tokens));
    }
  }
}

class DecoderCalls : public testing::Test {
 protected:
  Model model_ = OpenFixture("llama3");
  Random random_{4};
};

TEST_F(DecoderCalls, ACacheThatRunsOutIsExhaustedAndChangesNothing) {
  Decoder decoder(model_, {.max_sequences = 2, .cache_tokens = 3 * 16});
  const std::vector<int32_t> long_prompt = AnyTokens(model_, 32, random_);
  const std::vector<int32_t> short_prompt = AnyTokens(model_, 10, random_);
  const SequenceHandle first = decoder.Add();
  const SequenceHandle second = decoder.Add();
  Step(decoder, first, long_prompt);
  Step(decoder, second, short_prompt);
  EXPECT_EQ(decoder.FreePages(), 0);
  EXPECT_EQ(decoder.PagesFor(first, 1), 1);
  EXPECT_EQ(decoder.PagesFor(second, 6), 0);

  // The second has room in its page; together with the first it stays where it was.
  const std::vector<int32_t> next = {3};
  std::vector<float> hidden(2 * static_cast<size_t>(model_.info().dim));
  const DecodeChunk both[] = {{second, next}, {first, next}};
  try {
    decoder.Forward(both, hidden);
    ADD_FAILURE() << "no Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kExhausted);
    EXPECT_STREQ(error.what(), "pages = 1 is not allowed: at most the free ones, 0");
  }
  EXPECT_EQ(decoder.Length(first), 32);
  EXPECT_EQ(decoder.Length(second), 10);

  std::vector<int32_t> tokens = short_prompt;
  tokens.push_back(3);
  EXPECT_TRUE(SameSequence(Step(decoder, second, next), Fresh(model_, tokens)));
  decoder.Remove(second);
  tokens = long_prompt;
  tokens.push_back(3);
  EXPECT_TRUE(SameSequence(Step(decoder, first, next), Fresh(model_, tokens)));
}

TEST_F(DecoderCalls, NoMoreSequencesThanAskedForAreThere) {
  Decoder decoder(model_, {.max_sequences = 2});
  const SequenceHandle first = decoder.Add();
  decoder.Add();
  for (const auto& call : {std::function<void()>([&] { decoder.Add(); }),
                           std::function<void()>([&] { decoder.Fork(first, 0); })}) {
    ExpectError(call, "max_sequences", "2", "more sequences than exist", ErrorCode::kExhausted);
  }
  decoder.Remove(first);
  EXPECT_EQ(decoder.Length(decoder.Add()), 0);
}

TEST_F(DecoderCalls, AStaleHandleIsNeverAnotherSequence) {
  Decoder decoder(model_, {.max_sequences = 1});
  const SequenceHandle stale = decoder.Add();
  decoder.Remove(stale);
  const SequenceHandle other = decoder.Add();
  ASSERT_EQ(other.slot, stale.slot);
  EXPECT_THROW(Step(decoder, stale, {{1}}), Error);
  EXPECT_THROW(decoder.Remove(stale), Error);
  EXPECT_EQ(decoder.Length(other), 0);
}

TEST_F(DecoderCalls, ASequenceBeyondTheContextIsAnErrorThatNamesIt) {
  Decoder decoder(model_, {.max_batch_tokens = 300});
  const SequenceHandle sequence = decoder.Add();
  const std::vector<int32_t> tokens = AnyTokens(model_, 257, random_);
  const auto expect_refused = [&](std::span<const int32_t> more) {
    ExpectError([&] { Step(decoder, sequence, more); }, "sequence length", "257",
                "at most the model's context, 256");
  };
  expect_refused(tokens);
  EXPECT_EQ(decoder.Length(sequence), 0);
  Step(decoder, sequence, std::span(tokens).first(256));
  expect_refused({{1}});
  EXPECT_EQ(decoder.Length(sequence), 256);
}

// A good call, of which each case spoils one argument.
struct ForwardCall {
  std::vector<int32_t> tokens = {1, 2, 3};
  std::vector<int32_t> others = {4};
  std::vector<float> hidden = std::vector<float>(2 * 64);
  std::vector<DecodeChunk> chunks = {{{0, 0}, tokens, 1}, {{1, 0}, others, 1}};
};

TEST_F(DecoderCalls, BadArgumentsAreErrorsAndChangeNothing) {
  const std::vector<BadCase<ForwardCall>> cases = {
      {[](ForwardCall& c) { c.others[0] = -1; }, "chunk.tokens", "-1", "[0, 159]"},
      {[](ForwardCall& c) { c.others[0] = 160; }, "chunk.tokens", "160", "[0, 159]"},
      {[](ForwardCall& c) { c.chunks[1].tokens = {}; }, "chunk.tokens.size()", "0", "[1, 4]"},
      {[](ForwardCall& c) {
         c.others.resize(5);
         c.chunks[1].tokens = c.others;
       },
       "chunk.tokens.size()", "5", "[1, 4]"},
      {[](ForwardCall& c) {
         c.others.resize(2);
         c.chunks[1].tokens = c.others;
       },
       "tokens of all chunks", "5", "[0, 4]"},
      {[](ForwardCall& c) { c.chunks[1].hidden_rows = 2; }, "chunk.hidden_rows", "2", "[0, 1]"},
      {[](ForwardCall& c) { c.chunks[1].hidden_rows = -1; }, "chunk.hidden_rows", "-1", "[0, 1]"},
      {[](ForwardCall& c) { c.hidden.resize(127); }, "hidden.size()", "127", "128"},
      {[](ForwardCall& c) { c.chunks[1].sequence = {0, 0}; }, "chunks", "one sequence twice",
       "one chunk a sequence"},
      {[](ForwardCall& c) { c.chunks[1].sequence = {1, 1}; }, "sequence", "slot 1",
       "a sequence that Add or Fork gave"},
      {[](ForwardCall& c) { c.chunks[1].sequence = {7, 0}; }, "sequence", "slot 7",
       "a sequence that Add or Fork gave"},
      {[](ForwardCall& c) { c.chunks[1].sequence = {}; }, "sequence", "slot -1",
       "a sequence that Add or Fork gave"},
  };
  Decoder decoder(model_, {.max_sequences = 2, .max_batch_tokens = 4});
  decoder.Add();
  decoder.Add();
  ExpectErrors<ForwardCall>(cases, [&](ForwardCall& call) {
    const int64_t before = decoder.Length({0, 0});
    try {
      decoder.Forward(call.chunks, call.hidden);
    } catch (...) {
      EXPECT_EQ(decoder.Length({0, 0}), before);
      throw;
    }
  });
  const SequenceHandle first = {0, 0};
  ExpectError([&] { decoder.Truncate(first, 4); }, "length", "4", "[0, 3]");
  ExpectError([&] { decoder.Truncate(first, -1); }, "length", "-1", "[0, 3]");
  decoder.Remove({1, 0});
  ExpectError([&] { decoder.Fork(first, 4); }, "length", "4", "[0, 3]");
  ExpectError([&] { decoder.Remove({1, 0}); }, "sequence", "slot 1",
              "a sequence that Add or Fork gave");
}

// NaN in the weights of one token: what that token left in the cache is seen by nobody who does
// not have it, whether it stands later, in a page that was given back, or behind a window.
// A parallel-for that throws at its n-th loop, whichever part of the pass that is.
TEST(DecoderThatFails, IsAsItWasBefore) {
  struct Failing {
    int64_t loops_left = std::numeric_limits<int64_t>::max();
  } failing;
  const ParallelFor parallel{1, &failing,
                             [](void* context, int64_t count, ParallelFor::Task task, void* state) {
                               if (static_cast<Failing*>(context)->loops_left-- == 0) {
                                 throw std::runtime_error("no more");
                               }
                               for (int64_t i = 0; i < count; ++i) task(state, i, 0);
                             }};
  const Model model = OpenFixture("llama3");
  Random random(11);
  const std::vector<int32_t> tokens = AnyTokens(model, 30, random);
  const auto first = std::span(tokens).first(20), rest = std::span(tokens).subspan(20);
  Decoder decoder(model, {.cache_tokens = kFixtureTokens, .parallel = parallel});
  const SequenceHandle sequence = decoder.Add();
  Step(decoder, sequence, first);
  const int64_t free_pages = decoder.FreePages();
  for (int64_t loops = 0; loops < 20; loops += 3) {
    failing.loops_left = loops;
    EXPECT_THROW(Step(decoder, sequence, rest), std::runtime_error) << loops;
    EXPECT_EQ(decoder.Length(sequence), 20);
    EXPECT_EQ(decoder.FreePages(), free_pages);
  }
  failing.loops_left = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(SameSequence(Step(decoder, sequence, rest), Fresh(model, tokens)));
}

TEST_F(DecoderCalls, ATokenOfNanReachesNoOtherSequence) {
  constexpr int32_t kBad = 7;
  std::vector<StoredTensor> tensors =
      ParseSafetensors(ReadBytes(FixtureFolder("llama3") + "/model.safetensors"));
  for (StoredTensor& tensor : tensors) {
    if (tensor.name != "model.embed_tokens.weight") continue;
    std::vector<uint16_t> values = tensor.Values<uint16_t>();
    for (size_t i = 0; i < 64; ++i) values[kBad * 64 + i] = 0x7fc0;  // NaN in bf16
    tensor.SetValues(values);
  }
  const FileBytes bytes = ToSafetensors(tensors);
  const std::span<const std::byte> file(bytes);
  const std::string config = ReadText(FixtureFolder("llama3") + "/config.json");
  const Model spoilt = Model::FromFiles({config, {&file, 1}});

  std::vector<int32_t> tokens(40, 11);
  const std::vector<float> expected = Fresh(model_, tokens);
  for (const Backend backend : AvailableBackends()) {
    Decoder decoder(spoilt, {.cache_tokens = 4 * 16, .backend = backend});
    const SequenceHandle bad = decoder.Add();
    EXPECT_TRUE(std::isnan(Step(decoder, bad, std::vector<int32_t>(64, kBad))[0]));
    decoder.Remove(bad);
    const SequenceHandle good = decoder.Add();
    EXPECT_TRUE(SameSequence(Step(decoder, good, tokens), expected));

    decoder.Truncate(good, 20);
    std::vector<int32_t> rest(20, 11);
    rest.push_back(kBad);
    std::vector<float> hidden(21 * 64);
    const DecodeChunk chunk{good, rest, 21};
    decoder.Forward({&chunk, 1}, hidden);
    EXPECT_TRUE(SameSequence(std::span(hidden).subspan(19 * 64, 64), expected));
    EXPECT_TRUE(std::isnan(hidden.back()));
  }
}

}  // namespace
}  // namespace sluice::test
