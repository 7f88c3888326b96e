// The adjustments that look at the whole row, with vectors (Highway), compiled once for each SIMD
// target. Rules of a few tokens stay the definition's.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "adjust/adjust_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "adjust/adjust_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

template <class Read>
void WidenRow(const void* row, std::span<float> values) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= values.size(); i += hn::Lanes(d)) {
    const auto x = Read::At(row, i);
    hn::StoreU(x, d, values.data() + i);
    // The instruction that widens fp16 makes a signalling NaN quiet; the definition keeps its bits.
    if (std::is_same_v<Read, ReadF16> && !hn::AllFalse(d, hn::IsNaN(x))) {
      for (size_t lane = i; lane < i + hn::Lanes(d); ++lane) values[lane] = Read::One(row, lane);
    }
  }
  for (; i < values.size(); ++i) values[i] = Read::One(row, i);
}

void Widen(const void* row, DType dtype, std::span<float> values) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(values.data(), row, values.size_bytes());
      return;
    case DType::kBf16:
      return WidenRow<ReadBf16>(row, values);
    case DType::kF16:
      return WidenRow<ReadF16>(row, values);
  }
}

void ApplyBitmask(std::span<float> x, const int32_t* bitmask) {
  const F32 d;
  const auto masked = hn::Set(d, -semantics::Infinity());
  const size_t words = x.size() / 32;
  for (size_t w = 0; w < words; ++w) {
    const uint32_t allowed = static_cast<uint32_t>(bitmask[w]);
    if (allowed == 0xffffffffu) continue;
    float* values = x.data() + 32 * w;
    for (size_t v = 0; v < 32; v += hn::Lanes(d)) {
      const uint64_t bits = ~uint64_t{allowed} >> v;
      const auto mask = hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&bits));
      hn::BlendedStore(masked, mask, d, values + v);
    }
  }
  semantics::ApplyBitmask(x.subspan(32 * words), bitmask + words);
}

// The gaps between the allowed tokens.
void ApplyAllowedIds(std::span<float> x, std::span<const int32_t> allowed) {
  size_t begin = 0;
  for (const int32_t id : allowed) {
    std::fill(x.begin() + static_cast<int64_t>(begin), x.begin() + id, -semantics::Infinity());
    begin = static_cast<size_t>(id) + 1;
  }
  std::fill(x.begin() + static_cast<int64_t>(begin), x.end(), -semantics::Infinity());
}

void Adjust(std::span<float> values, const semantics::AdjustInput& input) {
  semantics::AdjustInput rest = input;
  if (input.bitmask != nullptr) ApplyBitmask(values, input.bitmask);
  if (input.has_allowed_ids) ApplyAllowedIds(values, input.allowed_ids);
  rest.bitmask = nullptr;
  rest.has_allowed_ids = false;
  semantics::AdjustRow(values, rest);
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#if HWY_ONCE
namespace sluice {

const AdjustTable kAdjustAvx2 = {N_AVX2::Widen, N_AVX2::Adjust, semantics::ApplyForced};
const AdjustTable kAdjustAvx512 = {N_AVX3::Widen, N_AVX3::Adjust, semantics::ApplyForced};

}  // namespace sluice
#endif
