// Views of memory that the caller owns. Nothing here allocates or copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : uint8_t { kF32, kBf16, kF16 };

constexpr size_t SizeOf(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

constexpr std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "float32";
    case DType::kBf16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
  }
  return "unknown";
}

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// The largest vocabulary (and row of scores). A weight is at most 2^40, so a sum over 2^23 tokens
// stays below 2^63 and every mass is exact in 64 bits.
inline constexpr int64_t kMaxVocab = int64_t{1} << 23;

// A matrix of which only the last axis is contiguous: `stride` elements lie between row starts.
// Elements between the width and the stride are padding and are never read. Rows may start at any
// address that is a multiple of the element size.
struct MatrixView {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  Device device = {};

  const void* Row(int64_t row) const {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(row * stride) * SizeOf(dtype);
  }
};

// One row of logits (or scores) per position to sample.
struct LogitsView {
  const void* data = nullptr;
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  Device device = {};

  const void* Row(int64_t row) const {
    return static_cast<const std::byte*>(data) + static_cast<size_t>(row * stride) * SizeOf(dtype);
  }
};

// A view for functions that write in place.
struct MutableLogitsView {
  void* data = nullptr;
  int64_t rows = 0;
  int64_t vocab = 0;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  Device device = {};

  void* Row(int64_t row) const {
    return static_cast<std::byte*>(data) + static_cast<size_t>(row * stride) * SizeOf(dtype);
  }
  // Whatever reads rows reads mutable ones too.
  operator LogitsView() const  // NOLINT(google-explicit-constructor)
  {
    return {data, rows, vocab, stride, dtype, device};
  }
};

}  // namespace sluice
