// Stages 2 and 17: log-probabilities and ranks, of the raw or of the processed values.
//
// logprob = fl32(((double)x - m) / T - ln2 * LOG2_64(Z * 2^-40)), in fp64. Raw modes take the raw
// x, their maximum and mass and T = 1; processed modes take the adjusted values of the kept set and
// the T of the draw, and a greedy row there is the whole of its adjusted values at T = 1.
#pragma once

#include "semantics/cut.h"
#include "semantics/draw/draw.h"
#include "semantics/draw/log2.h"
#include "semantics/row_status.h"
#include "semantics/temperature.h"

namespace sluice::semantics {

// The numbers that turn a value of a row into its log-probability.
struct Normalizer {
  double max;
  double temperature;
  double log_mass;  // natural; NaN when the row has no log-probabilities

  SLUICE_HD float Logprob(float x) const {
    const double distance = static_cast<double>(x) - max;
    const double scaled = distance / temperature;
    return static_cast<float>(scaled - log_mass);
  }
};

SLUICE_HD inline Normalizer NormalizerOf(float max, float temperature, uint64_t mass) {
  const double log2_mass =
      mass == 0 ? static_cast<double>(QuietNan()) : Log2(static_cast<double>(mass) * 0x1p-40);
  const double log_mass = 0x1.62e42fefa39efp-1 * log2_mass;
  return {max, temperature, log_mass};
}

// A raw NaN or +inf anywhere in the row gives NaN throughout.
SLUICE_HD inline Normalizer RawNormalizer(const Row& row) {
  const RowScan scan = ScanRow(row);
  if (scan.status != RowStatus::kOk) return NormalizerOf(0.0f, 1.0f, 0);
  const float scale = TemperatureScale(1.0f);
  uint64_t mass = 0;
  for (int64_t i = 0; i < row.size; ++i) mass += Weight(row[i], scan.max, scale);
  return NormalizerOf(scan.max, 1.0f, mass);
}

// The Cut that processed modes look at: a greedy row's is everything that is not masked.
SLUICE_HD inline Cut ProcessedCut(const Cut& cut, const SelectParams& params) {
  Cut processed = cut;
  if (IsGreedy(params)) {
    processed.upper = Infinity();
    processed.lower = -FloatOf(0x7f7fffffu);
    processed.ties_dropped = 0;
    processed.ties_kept = 0x7fffffff;
  }
  return processed;
}

SLUICE_HD inline Normalizer ProcessedNormalizer(const Row& adjusted, const Cut& cut, float max,
                                                const SelectParams& params) {
  const float temperature = IsGreedy(params) ? 1.0f : EffectiveTemperature(params.temperature);
  const uint64_t mass =
      KeptMass(adjusted, ProcessedCut(cut, params), max, TemperatureScale(temperature));
  return NormalizerOf(max, temperature, mass);
}

}  // namespace sluice::semantics
