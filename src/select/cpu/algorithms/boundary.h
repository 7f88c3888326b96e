// The one question that every algorithm of this folder answers.
//
// All rules of stages 12 to 14 that need more than a threshold are the same problem: elements have
// a key (the value, or for typical how far its surprise is from the mean) and a measure (a weight,
// or 1 for top-k). The boundary is the largest key at which the elements from it on measure at
// least the target. What a Cut needs is the boundary's value, what lies strictly above it, and how
// many elements tie with it: no ids.
//
// An algorithm changes the time alone: each is exact on its own, and none of them may take longer
// than a constant number of passes or one sort, whatever the row holds.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sluice/algorithm.hpp"

namespace sluice {

enum class Measure : uint8_t {
  kCount,           // every element measures 1; there are no weights
  kMass,            // its weight, which never rises as the key falls
  kMassInAnyOrder,  // its weight, in no order; the keys are at most 0 (typical)
};

// Keys are finite, without -0, and padded from `size` to whole vectors with -inf. Weights are
// integers up to 2^40 as fp32, padded with 0.
struct Elements {
  const float* keys;
  const float* weights;  // null with Measure::kCount
  size_t size;           // at least 1
  uint64_t mass;         // of all elements; 0 with Measure::kCount
};

struct Boundary {
  float value;
  int64_t above;        // number of elements strictly above it
  uint64_t mass_above;  // their mass; 0 with Measure::kCount
  int64_t ties;         // number of elements equal to it
};

// Memory of an algorithm: 8 bytes for each element and for 32 more. It serves as two arrays of
// floats or as one of pairs, never both at a time.
struct Scratch {
  std::byte* memory;
  size_t padded;  // number of elements that each array has room for

  float* Keys() const { return reinterpret_cast<float*>(memory); }
  float* Weights() const { return reinterpret_cast<float*>(memory) + padded; }
  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(memory);
  }
};

// target: at least 1 and at most the measure of all elements.
using FindBoundary = Boundary (*)(const Elements&, uint64_t target, const Scratch&, SelectWork&);

// One algorithm, for each measure.
struct BoundaryFinder {
  FindBoundary by_count;
  FindBoundary by_mass;
  FindBoundary by_mass_in_any_order;
};

}  // namespace sluice
