// Heads in which one nibble, or a tenth of a bound, decides the first token.
#pragma once

#include <cmath>
#include <utility>
#include <vector>

#include "head/certified/planes.h"
#include "head/certified/quantise.h"
#include "tests/head/heads.h"

namespace sluice::test {

struct PlantedHead {
  Rows rows;
  std::vector<float> hidden;
  int32_t first;  // the token with the largest logit
};

// A hidden state of one element: a nibble of the first row moves its score by eight scales times
// that element, and a half width is about three.
inline PlantedHead DecidedByANibble(Random& random) {
  constexpr size_t kElement = 5;
  PlantedHead planted = {MakeHead(HeadKind::kNormal, 6000, 64, random), {}, 1234};
  for (auto& row : planted.rows) row[kElement] = std::abs(row[kElement]) + 0.01f;
  auto& first = planted.rows[static_cast<size_t>(planted.first)];
  for (auto& row : planted.rows) first[kElement] = std::max(first[kElement], row[kElement]);
  first[kElement] *= 1.5f;
  planted.hidden.assign(64, 0.0f);
  planted.hidden[kElement] = 10.0f;
  return planted;
}
inline constexpr int64_t kDecidingElement = 5;

// Of strict planes: the hidden state is the error of the first row, so its logit is at the upper
// end of its interval, and that of the row behind it a twentieth of the half width below.
inline PlantedHead DecidedByATenthOfABound(Random& random) {
  constexpr size_t kDim = 128;
  PlantedHead planted = {Rows(6000, std::vector<float>(kDim, 0.0f)), {}, 100};
  for (;;) {
    std::vector<double> rest(kDim), kept(kDim);
    auto& first = planted.rows[static_cast<size_t>(planted.first)];
    double largest = 0.0;
    for (float& w : first) {
      w = static_cast<float>(random.Normal());
      largest = std::max(largest, std::abs(static_cast<double>(w)));
    }
    const double scale = static_cast<double>(semantics::FloatOf(uint32_t{ScaleFor(largest)} << 16));
    double product = 0.0, squares = 0.0;
    for (size_t j = 0; j < kDim; ++j) {
      kept[j] = scale * StrictCodes(static_cast<double>(first[j]), scale).high;
      rest[j] = static_cast<double>(first[j]) - kept[j];
      product += kept[j] * rest[j];
      squares += rest[j] * rest[j];
    }
    const double target = product + 0.95 * squares;
    // Far above the logits of the other rows, which are 0, and not so far that roundings matter.
    if (!(target > squares && target < 4.0 * squares)) continue;
    planted.hidden.clear();
    for (const double e : rest) planted.hidden.push_back(static_cast<float>(e));
    // The row behind it: one element, seven times a scale, which planes hold without an error.
    size_t most = 0;
    for (size_t j = 0; j < kDim; ++j) {
      if (std::abs(rest[j]) > std::abs(rest[most])) most = j;
    }
    const float seventh = static_cast<float>(target / rest[most] / 7.0);
    planted.rows[200][most] = 7.0f * semantics::FloatOf(semantics::BitsOf(seventh) & 0xffff0000u);
    return planted;
  }
}

// The same of both planes: the hidden state is what both leave of the first row. By the first plane
// alone half of the rows behind it may be the first, so that many are refined.
inline PlantedHead DecidedByATenthOfALowBound(Random& random) {
  constexpr size_t kDim = 128;
  PlantedHead planted = {Rows(6000, std::vector<float>(kDim)), {}, 100};
  for (auto& row : planted.rows) {
    for (float& w : row) w = static_cast<float>(random.Normal());
  }
  for (;;) {
    std::vector<double> rest(kDim);
    auto& first = planted.rows[static_cast<size_t>(planted.first)];
    double largest = 0.0;
    for (float& w : first) {
      w = static_cast<float>(random.Normal());
      largest = std::max(largest, std::abs(static_cast<double>(w)));
    }
    const double scale = static_cast<double>(semantics::FloatOf(uint32_t{ScaleFor(largest)} << 16));
    double product = 0.0, squares = 0.0;
    for (size_t j = 0; j < kDim; ++j) {
      const TwoCodes code = StrictCodes(static_cast<double>(first[j]), scale);
      const double kept = scale * (code.high + code.low / 16.0);
      rest[j] = static_cast<double>(first[j]) - kept;
      product += kept * rest[j];
      squares += rest[j] * rest[j];
    }
    const double target = product + 0.95 * squares;
    if (!(target > squares && target < 4.0 * squares)) continue;
    planted.hidden.clear();
    for (const double e : rest) planted.hidden.push_back(static_cast<float>(e));
    size_t most = 0;
    for (size_t j = 0; j < kDim; ++j) {
      if (std::abs(rest[j]) > std::abs(rest[most])) most = j;
    }
    for (size_t v = 0; v < planted.rows.size(); ++v) {
      if (v == static_cast<size_t>(planted.first)) continue;
      double logit = 0.0;
      for (size_t j = 0; j < kDim; ++j) logit += static_cast<double>(planted.rows[v][j]) * rest[j];
      for (float& w : planted.rows[v]) w = logit > 0.0 ? -w : w;
    }
    const float seventh = static_cast<float>(target / rest[most] / 7.0);
    planted.rows[200].assign(kDim, 0.0f);
    planted.rows[200][most] = 7.0f * semantics::FloatOf(semantics::BitsOf(seventh) & 0xffff0000u);
    return planted;
  }
}

// The same bytes as a HeadPlanes, changed.
class ChangedPlanes : public HeadPlanes::Impl {
 public:
  explicit ChangedPlanes(const HeadPlanes& planes)
      : memory_(PlaneAccess::Bytes(planes).size() / 8 + 9) {
    const std::span<const std::byte> from = PlaneAccess::Bytes(planes);
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    std::byte* const to = reinterpret_cast<std::byte*>(memory_.data()) +
                          (kSectionAlignment - address % kSectionAlignment) % kSectionAlignment;
    std::copy(from.begin(), from.end(), to);
    bytes_ = {to, from.size()};
  }

  // The high bit of the code of an element of a row.
  void FlipNibble(int64_t row, int64_t element) {
    const PlaneView planes = view();
    auto* const codes = const_cast<std::byte*>(planes.Codes(row / kTileRows));
    codes[CodeByte(row % kTileRows, element)] ^=
        IsHighHalf(element) ? std::byte{0x80} : std::byte{0x08};
  }
  void ShrinkBounds(float factor) { Shrink(view().errors, factor); }
  void ShrinkLowBounds(float factor) { Shrink(view().low_errors, factor); }

 private:
  void Shrink(const float* errors, float factor) {
    auto* const changed = const_cast<float*>(errors);
    for (int64_t v = 0; v < view().tiles() * kTileRows; ++v) changed[v] *= factor;
  }

  std::vector<uint64_t> memory_;
};

}  // namespace sluice::test
