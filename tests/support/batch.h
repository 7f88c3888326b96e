// An owning matrix of logits at any dtype and stride, at the least alignment its dtype has, with
// garbage in the padding.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "semantics/host_device.h"
#include "semantics/widen.h"
#include "sluice/tensor.hpp"

namespace sluice::test {

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kBf16, DType::kF16};

// The nearest half, ties to even. Not by _Float16, which clang 14 lacks.
inline uint16_t NarrowedF16(float x) {
  const uint32_t sign = semantics::BitsOf(x) >> 16 & 0x8000u;
  const uint32_t bits = semantics::BitsOf(x) & 0x7fffffffu;
  uint32_t half;
  if (bits > 0x7f800000u) {
    half = 0x7e00u | (bits >> 13 & 0x3ffu);  // NaN, quiet
  } else if (bits >= 0x477ff000u) {
    half = 0x7c00u;  // from 65520 on
  } else if (bits < 0x38800000u) {
    half = semantics::BitsOf(std::abs(x) + 0.5f) - semantics::BitsOf(0.5f);  // in units of 2^-24
  } else {
    half = (bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}

// The nearest value of a narrow dtype, ties to even, as its bits.
inline uint16_t Narrowed(float x, DType dtype) {
  if (dtype == DType::kF16) return NarrowedF16(x);
  const uint32_t bits = semantics::BitsOf(x);
  if (x != x) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

inline float Widened(uint16_t bits, DType dtype) {
  return dtype == DType::kF16 ? semantics::WidenF16(bits) : semantics::WidenBf16(bits);
}

class Batch {
 public:
  Batch(std::vector<std::vector<float>> rows, DType dtype = DType::kF32, int64_t padding = 3)
      : dtype_(dtype),
        rows_(static_cast<int64_t>(rows.size())),
        vocab_(rows.empty() ? 1 : static_cast<int64_t>(rows[0].size())),
        stride_(vocab_ + padding) {
    // One element in: a row may start at any multiple of the element size.
    bytes_.resize(static_cast<size_t>(rows_ * stride_ + 1) * SizeOf(dtype) + 64);
    const size_t misaligned = reinterpret_cast<uintptr_t>(bytes_.data()) % 64;
    first_ = bytes_.data() + (64 - misaligned) % 64 + SizeOf(dtype);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t i = 0; i < stride_; ++i) {
        const float garbage = i % 2 == 0 ? 1e30f : std::numeric_limits<float>::quiet_NaN();
        Set(r, i, i < vocab_ ? rows[static_cast<size_t>(r)][static_cast<size_t>(i)] : garbage);
      }
    }
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  LogitsView view() const { return {first_, rows_, vocab_, stride_, dtype_, {}}; }
  MutableLogitsView mutable_view() { return {first_, rows_, vocab_, stride_, dtype_, {}}; }
  LogitsView row(int64_t r) const { return {view().Row(r), 1, vocab_, stride_, dtype_, {}}; }

  float Get(int64_t r, int64_t i) const { return semantics::Load(view().Row(r), dtype_, i); }
  void Set(int64_t r, int64_t i, float x) {
    void* row = mutable_view().Row(r);
    if (dtype_ == DType::kF32) {
      static_cast<float*>(row)[i] = x;
    } else {
      static_cast<uint16_t*>(row)[i] = Narrowed(x, dtype_);
    }
  }
  // Every byte, padding included.
  std::span<const std::byte> bytes() const { return bytes_; }
  // Those from the first row's start to the last row's padding.
  std::span<const std::byte> row_bytes() const {
    return {first_, static_cast<size_t>(rows_ * stride_) * SizeOf(dtype_)};
  }

 private:
  DType dtype_;
  int64_t rows_;
  int64_t vocab_;
  int64_t stride_;
  std::vector<std::byte> bytes_;
  std::byte* first_;
};

}  // namespace sluice::test
