// Fields of parameters in device memory, set by a kernel: from numbers that come with the launch,
// or from arrays in device memory. Nothing is copied from the host, so a captured graph can do it.
#pragma once

#include <cstdint>

#include "sluice/params.hpp"

namespace sluice::python {

enum class FieldSource : uint8_t { kNumber, kF32, kF64, kI32, kI64 };
enum class FieldType : uint8_t { kF32, kI32, kU32, kU64, kBytes };

// One member of SelectParams or NoiseKey.
struct Field {
  FieldSource source;
  FieldType type;
  bool is_of_key;
  uint8_t size;      // of the member
  int32_t offset;    // in its struct
  uint64_t number;   // its bytes, when that is the source
  const void* data;  // else the array: one element a row, or one
  int64_t stride;    // in elements; 0 with one for all rows
};

inline constexpr int kMostFields = 16;

struct FieldWrites {
  SelectParams* params;
  NoiseKey* keys;
  int32_t rows;   // of each
  bool resets;    // to their defaults, before
  int32_t count;  // of fields
  Field fields[kMostFields];
};

// On the current device. An int64 below int32 becomes one that no parameter allows; above, the
// largest. Keys take the low bits.
void LaunchFieldWrites(const FieldWrites& writes, void* stream);

}  // namespace sluice::python
