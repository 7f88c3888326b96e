// Selection parameters to test with.
#pragma once

#include <vector>

#include "sluice/params.hpp"
#include "tests/support/random.h"

namespace sluice::test {

// Each filter is off, ordinary, or at an end of its range; the profile is any of the named ones.
inline SelectParams RandomSelectParams(int64_t vocab, Random& random) {
  SelectParams params;
  auto one_of = [&random](std::vector<float> values) { return random.Pick(values); };
  params.temperature = one_of({1.0f, 1.0f, 0.7f, 0.0f, 0.01f, 1e-6f, 2.0f, 1.3f});
  if (random.Coin()) {
    std::vector<int64_t> ks = {-1, 0,         1,     2,         5,
                               50, vocab - 1, vocab, vocab + 1, 1 + random.Below(vocab)};
    params.top_k = static_cast<int32_t>(random.Pick(ks));
  }
  if (random.Coin()) params.top_p = one_of({0.9f, 0.5f, 1e-12f, 0.999999f, 0.1f, 1.0f});
  if (random.Coin(0.3)) params.min_p = one_of({0.05f, 0.5f, 1.0f, 1e-6f});
  if (random.Coin(0.2)) params.top_n_sigma = one_of({1.0f, 0.3f, 16.0f, 2.5f});
  if (random.Coin(0.2)) params.typical_p = one_of({0.9f, 0.5f, 0.05f});
  if (random.Coin(0.2)) {
    params.xtc_probability = one_of({0.5f, 1.0f});
    params.xtc_threshold = one_of({0.1f, 0.0f, 0.3f, 1e-4f});
  }
  params.profile = kProfiles[random.Below(std::size(kProfiles))].profile;
  return params;
}

// Named profiles are five points of a larger space: half of them take each switch by itself.
inline SelectParams RandomSwitchedParams(int64_t vocab, Random& random) {
  SelectParams params = RandomSelectParams(vocab, random);
  if (random.Coin()) {
    Profile& profile = params.profile;
    profile.ties = random.Coin() ? Ties::kAll : Ties::kLowestId;
    profile.top_k_top_p = random.Coin() ? TopKTopP::kJoint : TopKTopP::kSequential;
    profile.min_p_stage = random.Coin() ? MinPStage::kLast : MinPStage::kBeforeTopK;
    profile.top_p_boundary = random.Coin() ? TopPBoundary::kInclusive : TopPBoundary::kExclusive;
    profile.temperature_stage =
        random.Coin() ? TemperatureStage::kLast : TemperatureStage::kBeforeTruncation;
  }
  return params;
}

inline NoiseKey RandomKey(Random& random) {
  return {random.Bits(), static_cast<uint32_t>(random.Bits()),
          static_cast<uint32_t>(random.Below(1 << 24))};
}

// One of each extreme, for going through hostile rows.
inline std::vector<SelectParams> ExtremeSelectParams() {
  return {
      {},
      {.temperature = 0.0f},
      {.temperature = 0.01f},
      {.top_k = 1},
      {.top_k = 7},
      {.top_k = 1 << 30},
      {.top_p = 0.5f},
      {.top_p = 1e-12f},
      {.top_p = 0.99999994f},
      {.top_k = 7, .top_p = 0.5f},
      {.min_p = 0.5f},
      {.min_p = 1.0f},
      {.top_n_sigma = 1.0f},
      {.typical_p = 0.5f},
      {.typical_p = 0.1f},
      {.xtc_probability = 1.0f},
      {.typical_p = 0.9f, .xtc_probability = 1.0f, .xtc_threshold = 0.0f},
  };
}

}  // namespace sluice::test
