// Rows of logits to test with: what models give, and what breaks samplers.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/support/random.h"

namespace sluice::test {

// Rows such as decoding gives, and the shapes that selection algorithms find hard.
enum class RowKind {
  kPeaked,       // a body N(-2, 1.6), a nucleus (p = 0.9) of a few tokens
  kMid,          // ... of some 50 tokens
  kFlat,         // ... of thousands
  kNormal,       // N(0, 1): the nucleus is most of the vocabulary
  kBf16Rounded,  // kMid with the ties that bf16 arithmetic leaves
  kFewDistinct,  // eight distinct values: ties everywhere
  kRamp,         // ascending with the id
  kMasked,       // kMid with nine of ten tokens at -inf
};
inline constexpr RowKind kAllRowKinds[] = {
    RowKind::kPeaked,      RowKind::kMid,         RowKind::kFlat, RowKind::kNormal,
    RowKind::kBf16Rounded, RowKind::kFewDistinct, RowKind::kRamp, RowKind::kMasked,
};
std::string_view Name(RowKind kind);

std::vector<float> MakeRow(RowKind kind, int64_t vocab, Random& random);

// A row that goes through every function, at every dtype; nearly all of its values are exact in all
// three.
struct HostileRow {
  std::string_view name;
  std::vector<float> values;
};

// All equal, all -inf, one finite, NaN, +inf, denormals, finite masks, ties at every cut, one
// token, odd widths, ... for a vocabulary of about the given size.
std::vector<HostileRow> HostileRows(int64_t vocab = 67);

}  // namespace sluice::test
