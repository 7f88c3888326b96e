// Rows of logits for the benchmarks: made up, equal on every machine, and shaped like a model's.
//
// The first three kinds are a body of N(-2, 1.6) with 40 outliers, moved together, row by row,
// until the nucleus (the smallest prefix with a share p = 0.9 of the mass at T = 1) has a size
// drawn from the kind's range; of all shifts that give the size, any is as likely as any other. (A
// row that is moved just to the edge of a size sits on its own decision boundary, where no interval
// arithmetic can decide, and makes every implementation look slow or wrong.) A row's rounding to
// bf16 moves its size once more, and is left at that. The tests have their own rows of the same
// names.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "sluice/tensor.hpp"

namespace sluice::bench {

enum class Distribution : uint8_t {
  kPeaked,       // nucleus of 1 to 5 tokens
  kMid,          // 30 to 80
  kFlat,         // 1000 to 4000
  kNormal,       // N(0, 1): a nucleus of 61 % of the vocabulary
  kFewDistinct,  // eight values, half a unit apart
  kRamp,         // ascending with the id, from 0 to 12
  kMasked,       // mid, and nine tenths of it at -inf
};

inline constexpr Distribution kDistributions[] = {
    Distribution::kPeaked,      Distribution::kMid,  Distribution::kFlat,  Distribution::kNormal,
    Distribution::kFewDistinct, Distribution::kRamp, Distribution::kMasked};

std::string_view Name(Distribution distribution);

// Row `index` of a distribution, in fp32: equal whenever it is made.
std::vector<float> MakeRow(Distribution distribution, int64_t vocab, uint32_t index);

// Tokens in the nucleus for p = 0.9 at T = 1, with fp64 weights and an fp64 sum.
int64_t NucleusSize(std::span<const float> row);

// Sizes that rows of this kind are made to have; {0, 0} where nothing is promised. Vocabularies
// below 32000 get smaller ones: never more than an eighth of the tokens.
struct SizeRange {
  int64_t low;
  int64_t high;
};
SizeRange TargetNucleus(Distribution distribution, int64_t vocab);

uint16_t RoundToBf16(float x);  // to nearest even; no NaN may come in
float WidenBf16(uint16_t bits);

}  // namespace sluice::bench
