// Stage 8, DRY ("don't repeat yourself"): a token that would extend a repeat of length len >=
// allowed_length gets x - mult * base^(len - allowed_length). A repeat is a run of last tokens that
// also stands earlier; it does not reach across a breaker. A token that would extend several counts
// the longest.
//
// The power is a repeated fp64 product, capped at 1e30; the penalty is rounded once to fp32.
#pragma once

#include <span>

#include "semantics/adjust/token_counts.h"

namespace sluice::semantics {

struct Dry {
  float multiplier = 0.0f;
  float base = 1.75f;
  int32_t allowed_length = 2;
  int32_t range = -1;                      // how many last tokens are looked at; -1 is all
  std::span<const int32_t> breakers = {};  // ascending
};

SLUICE_HD inline float DryPenalty(const Dry& dry, uint32_t length) {
  constexpr double kLargestPower = 1e30;
  double power = 1.0;
  for (uint32_t i = static_cast<uint32_t>(dry.allowed_length); i < length; ++i) {
    power *= static_cast<double>(dry.base);
    if (power >= kLargestPower || power == 1.0) break;
  }
  if (power > kLargestPower) power = kLargestPower;
  return static_cast<float>(static_cast<double>(dry.multiplier) * power);
}

SLUICE_HD inline bool IsBreaker(const Dry& dry, int32_t id) {
  size_t begin = 0;
  size_t end = dry.breakers.size();
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    if (dry.breakers[middle] < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin < dry.breakers.size() && dry.breakers[begin] == id;
}

// repeats[d] = how many tokens before and with the d-th from the end equal the last tokens, for d
// from 1 on. The Z function of the tokens read backwards: linear, however repetitive they are.
// Tokens: a span, or whatever has its size() and its elements.
template <typename Tokens>
SLUICE_HD inline void FindRepeats(const Tokens& tokens, std::span<uint32_t> repeats) {
  const size_t n = tokens.size();
  auto from_end = [&](size_t d) { return tokens[n - 1 - d]; };
  size_t begin = 0;  // the known match that reaches furthest is [begin, end)
  size_t end = 0;
  for (size_t d = 1; d < n; ++d) {
    size_t length = 0;
    if (d < end) {
      const size_t known = repeats[d - begin];
      length = known < end - d ? known : end - d;
    }
    while (d + length < n && from_end(length) == from_end(d + length)) ++length;
    if (d + length > end) {
      begin = d;
      end = d + length;
    }
    repeats[d] = static_cast<uint32_t>(length);
  }
}

// The repeats that the tokens would extend, into the scratch field of the counts, when DRY is on.
// tokens: prompt and output. counts: of the same tokens. workspace: as many elements as tokens.
SLUICE_HD inline void CountRepeats(const Dry& dry, std::span<const int32_t> tokens,
                                   std::span<TokenCount> counts, std::span<uint32_t> workspace) {
  if (dry.multiplier == 0.0f) return;
  if (dry.range >= 0 && tokens.size() > static_cast<size_t>(dry.range)) {
    tokens = tokens.last(static_cast<size_t>(dry.range));
  }
  const size_t n = tokens.size();
  uint32_t longest = 0;  // a repeat ends where the last tokens have a breaker
  while (longest < n && !IsBreaker(dry, tokens[n - 1 - longest])) ++longest;

  FindRepeats(tokens, workspace);
  for (TokenCount& count : counts) count.repeat = 0;
  for (size_t d = 1; d < n; ++d) {
    const uint32_t length = workspace[d] < longest ? workspace[d] : longest;
    TokenCount& follower = counts[LowerBound(counts, tokens[n - d])];
    if (length > follower.repeat) follower.repeat = length;
  }
}

// count: of the token, its repeat counted.
SLUICE_HD inline float WithoutRepeat(float x, const Dry& dry, const TokenCount& count) {
  if (dry.multiplier == 0.0f) return x;
  if (count.repeat < static_cast<uint32_t>(dry.allowed_length)) return x;
  return x - DryPenalty(dry, count.repeat);
}

// counts and workspace: as CountRepeats takes them.
SLUICE_HD inline void ApplyDry(std::span<float> x, const Dry& dry, std::span<const int32_t> tokens,
                               std::span<TokenCount> counts, std::span<uint32_t> workspace) {
  if (dry.multiplier == 0.0f) return;
  CountRepeats(dry, tokens, counts, workspace);
  for (const TokenCount& count : counts) {
    float& value = x[static_cast<size_t>(count.id)];
    value = WithoutRepeat(value, dry, count);
  }
}

}  // namespace sluice::semantics
