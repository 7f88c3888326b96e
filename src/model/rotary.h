// Rotary position embeddings: the angle of each pair of elements at a position, with the scalings
// that models use to reach longer contexts.
#pragma once

#include <cstdint>
#include <vector>

#include "model/json_fields.h"

namespace sluice::model {

struct Rotary {
  std::vector<float> frequencies;  // one a pair: radians a position
  float magnitude = 1.0f;          // of the turned vector: YaRN lengthens it

  // cosines, sines: frequencies.size() each. In float, as the models were trained: the angle is
  // position * frequency, rounded once.
  void AnglesAt(int64_t position, float* cosines, float* sines) const;
};

// scaling: config.json's rope_parameters or rope_scaling, or nothing. Kinds: default, linear,
// llama3, yarn. Throws Error naming any other.
Rotary MakeRotary(const JsonFields* scaling, double theta, int64_t head_dim, int64_t context);

}  // namespace sluice::model
