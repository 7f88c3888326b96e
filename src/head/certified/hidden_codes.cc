#include "head/certified/hidden_codes.h"

#include <algorithm>
#include <cmath>

#include "head/certified/quantise.h"

namespace sluice {
namespace {

constexpr double kLargest = 127 * 128;  // |high| <= 127 and -64 <= low <= 63
constexpr double kLeastNorm = 0x1p-60;  // as kLeastScale
constexpr double kLeastStep = 0x1p-90;  // so small that its rounding is negligible to kLeastNorm

}  // namespace

bool EncodeHidden(const semantics::Row& hidden, const PlaneView& planes, HiddenGroup* groups,
                  HiddenState& state) {
  double rho = 0.0;
  double all_squares = 0.0;
  for (int64_t g = 0; g < planes.groups; ++g) {
    HiddenGroup& group = groups[g];
    const int64_t begin = g * kPlaneGroup;
    const int64_t size = std::min<int64_t>(kPlaneGroup, planes.dim - begin);
    double values[kPlaneGroup] = {};
    double largest = 0.0;
    for (int64_t j = 0; j < size; ++j) {
      const float h = hidden[begin + j];
      if (!std::isfinite(h)) return false;
      values[j] = static_cast<double>(h);
      largest = std::max(largest, std::fabs(values[j]));
    }
    group.scale =
        largest == 0.0 ? 0.0f : static_cast<float>(std::max(largest / kLargest, kLeastStep));
    const double scale = static_cast<double>(group.scale);
    double squares = 0.0;
    double rest_squares = 0.0;
    double dither = 0.0;
    int32_t sum = 0;
    for (int64_t j = 0; j < kPlaneGroup; ++j) {
      const int element = largest == 0.0 ? 0 : static_cast<int>(std::nearbyint(values[j] / scale));
      const int high = (element + 64 + 128 * 128) / 128 - 128;  // floor
      group.high[j] = static_cast<int8_t>(high);
      group.low[j] = static_cast<int8_t>(element - 128 * high);
      sum += element;
      dither += static_cast<double>(planes.dither[begin + j]) * element;
      const double rest = values[j] - scale * element;
      squares += values[j] * values[j];
      rest_squares += rest * rest;
    }
    group.start = -8 * sum;
    group.dither = static_cast<float>(scale * dither);
    const double norm = largest == 0.0 ? 0.0 : std::max(std::sqrt(squares), kLeastNorm);
    group.square = RoundedUp(norm * norm * (1.0 + 1e-9));
    if (largest != 0.0) rho = std::max(rho, std::sqrt(rest_squares) / norm * (1.0 + 1e-9));
    all_squares += squares;
  }
  state.groups = groups;
  if (planes.kind == CertificateKind::kDither4) {
    const double kappa = DitherKappa(planes.vocab, kDitherFailure);
    state.bound = StepBoundOf(planes.dim, kappa, 0.0, rho);
  } else {
    const double norm = static_cast<double>(NormUp(all_squares));
    state.bound = StepBoundOf(planes.dim, 0.0, norm, rho);
  }
  return true;
}

}  // namespace sluice
