// All adjustments together against a plain reading of the definition, token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

#include "tests/adjust/request.h"
#include "tests/support/first_difference.h"
#include "tests/support/random.h"
#include "tests/support/slowdown.h"

namespace sluice::test {
namespace {

// One token's value, rule by rule, from the definition.
float Expected(float x, int32_t id, const Request& r) {
  const size_t index = static_cast<size_t>(id);
  const bool allowed_by_bits =
      r.bitmask.empty() || (static_cast<uint32_t>(r.bitmask[index / 32]) >> (index % 32) & 1u) == 1;
  if (!allowed_by_bits) x = -kInf;
  if (r.has_allowed && std::find(r.allowed.begin(), r.allowed.end(), id) == r.allowed.end()) {
    x = -kInf;
  }
  for (const Ids& word : r.bad_words) {
    const Ids start(word.begin(), word.end() - 1);
    if (word.back() == id && r.output.size() >= start.size() &&
        Ids(r.output.end() - static_cast<std::ptrdiff_t>(start.size()), r.output.end()) == start) {
      x = -kInf;
    }
  }
  const bool is_stop = std::find(r.stop_ids.begin(), r.stop_ids.end(), id) != r.stop_ids.end();
  if (is_stop && static_cast<int64_t>(r.output.size()) < r.min_tokens) x = -kInf;
  for (const BiasEntry& entry : r.bias) {
    if (entry.id == id) x += std::clamp(entry.bias, -100.0f, 100.0f);
  }

  const auto in_prompt = std::count(r.prompt.begin(), r.prompt.end(), id);
  const auto in_output = std::count(r.output.begin(), r.output.end(), id);
  if (in_prompt + in_output > 0) {
    x = x > 0 ? x / r.penalties.repetition : x * r.penalties.repetition;
  }
  const auto count = in_output + (r.scope == PenaltyScope::kPromptAndOutput ? in_prompt : 0);
  x -= r.penalties.frequency * static_cast<float>(count);
  if (count > 0) x -= r.penalties.presence;

  // DRY by trying every length at every place.
  Ids tokens = r.prompt;
  tokens.insert(tokens.end(), r.output.begin(), r.output.end());
  if (r.dry.range >= 0 && tokens.size() > static_cast<size_t>(r.dry.range)) {
    tokens.erase(tokens.begin(), tokens.end() - r.dry.range);
  }
  int64_t longest = 0;
  const int64_t n = static_cast<int64_t>(tokens.size());
  for (int64_t length = 1; length < n; ++length) {
    const Ids tail(tokens.end() - length, tokens.end());
    const bool broken = std::any_of(tail.begin(), tail.end(), [&](int32_t t) {
      return std::find(r.breakers.begin(), r.breakers.end(), t) != r.breakers.end();
    });
    for (int64_t begin = 0; !broken && begin + length < n; ++begin) {
      if (tokens[static_cast<size_t>(begin + length)] == id &&
          std::equal(tail.begin(), tail.end(), tokens.begin() + begin)) {
        longest = length;
      }
    }
  }
  if (r.dry.multiplier > 0 && longest >= r.dry.allowed_length) {
    double power = 1;
    for (int64_t i = r.dry.allowed_length; i < longest; ++i) {
      power *= static_cast<double>(r.dry.base);
    }
    x -= static_cast<float>(static_cast<double>(r.dry.multiplier) * std::min(power, 1e30));
  }
  return x;
}

Ids RandomIds(int64_t most, int64_t vocab, Random& random) {
  Ids ids(static_cast<size_t>(random.Below(most + 1)));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.Below(vocab));
  return ids;
}

Ids RandomSet(int64_t most, int64_t vocab, Random& random) {
  const Ids ids = RandomIds(most, vocab, random);
  const std::set<int32_t> distinct(ids.begin(), ids.end());
  return Ids(distinct.begin(), distinct.end());
}

// Histories over few tokens, so that words are completed and repeats are long.
Request RandomRequest(int64_t vocab, Random& random) {
  Request r;
  const int64_t alphabet = 1 + random.Below(std::min<int64_t>(vocab, 5));
  r.prompt = RandomIds(20, alphabet, random);
  r.output = RandomIds(20, random.Coin() ? alphabet : vocab, random);
  if (random.Coin(0.3)) {
    for (int64_t w = 0; w < (vocab + 31) / 32; ++w) {
      r.bitmask.push_back(static_cast<int32_t>(random.Bits()));
    }
  }
  r.has_allowed = random.Coin(0.2);
  r.allowed = RandomSet(vocab, vocab, random);
  for (int64_t w = random.Below(6); w > 0; --w) {
    r.bad_words.push_back(RandomIds(3, alphabet, random));
    r.bad_words.back().push_back(static_cast<int32_t>(random.Below(vocab)));
  }
  r.stop_ids = RandomSet(3, vocab, random);
  r.min_tokens = static_cast<int32_t>(random.Below(25));
  for (const int32_t id : RandomIds(4, vocab, random)) {
    r.bias.push_back({id, static_cast<float>(60 * random.Normal())});
  }
  r.penalties.repetition = std::vector<float>{1, 1.3f, 0.7f}[random.Bits() % 3];
  r.penalties.frequency = std::vector<float>{0, 0.3f, -1.1f}[random.Bits() % 3];
  r.penalties.presence = std::vector<float>{0, 0.7f, -0.3f}[random.Bits() % 3];
  r.scope = random.Coin() ? PenaltyScope::kOutput : PenaltyScope::kPromptAndOutput;
  r.dry.multiplier = std::vector<float>{0, 0.8f, 3}[random.Bits() % 3];
  r.dry.base = std::vector<float>{1.75f, 1, 90}[random.Bits() % 3];
  r.dry.allowed_length = static_cast<int32_t>(1 + random.Below(4));
  r.dry.range = random.Coin() ? -1 : static_cast<int32_t>(random.Below(45));
  r.breakers = random.Coin() ? RandomSet(2, vocab, random) : Ids{};
  return r;
}

class AdjustOracle : public AdjustTest {};

TEST_P(AdjustOracle, AgreesWithThePlainReadingOnRandomRequests) {
  Random random(41);
  for (int i = 0; i < Rounds(3000) && !HasFailure(); ++i) {
    const int64_t vocab = 1 + random.Below(70);
    const Request request = RandomRequest(vocab, random);
    Values values(static_cast<size_t>(vocab));
    for (float& x : values) x = static_cast<float>(random.Between(-64, 64)) * 0.125f;
    Values expected;
    for (size_t id = 0; id < values.size(); ++id) {
      expected.push_back(Expected(values[id], static_cast<int32_t>(id), request));
    }
    EXPECT_TRUE(SameSequence(Adjusted(values, request), expected)) << "request " << i;
  }
}

SLUICE_FOR_EACH_BACKEND(AdjustOracle);

}  // namespace
}  // namespace sluice::test
