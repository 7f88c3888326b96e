// Storing the marked lanes of a vector one after the other.
#include <array>
#include <bit>
#include <cstdint>

#if defined(SLUICE_SUPPORT_COMPRESS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SUPPORT_COMPRESS_INL_H_
#undef SLUICE_SUPPORT_COMPRESS_INL_H_
#else
#define SLUICE_SUPPORT_COMPRESS_INL_H_
#endif

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2

// For each mask of eight lanes the numbers of its lanes, a byte each. Highway 1.0.3 has such a
// table as a local variable, which gcc copies to the stack at every call: 29 ns instead of 2.
constexpr std::array<uint64_t, 256> MarkedLanes() {
  std::array<uint64_t, 256> table = {};
  for (uint64_t mask = 0; mask < 256; ++mask) {
    int at = 0;
    for (uint64_t lane = 0; lane < 8; ++lane) {
      if ((mask >> lane) & 1) table[mask] |= lane << (8 * at++);
    }
  }
  return table;
}
inline constexpr std::array<uint64_t, 256> kMarkedLanes = MarkedLanes();

// Stores the lanes of v with a set bit and returns how many. A whole vector is written.
template <class D>
inline size_t CompressTo(D d, hn::Vec<D> v, uint64_t lane_bits, hn::TFromD<D>* to) {
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> d8;
  const hn::CappedTag<uint64_t, 1> d64;
  const auto lanes = hn::BitCast(d8, hn::Set(d64, kMarkedLanes[lane_bits]));
  hn::StoreU(hn::TableLookupLanes(v, hn::IndicesFromVec(d, hn::PromoteTo(di, lanes))), d, to);
  return static_cast<size_t>(std::popcount(lane_bits));
}

#else

template <class D>
inline size_t CompressTo(D d, hn::Vec<D> v, uint64_t lane_bits, hn::TFromD<D>* to) {
  const auto mask = hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&lane_bits));
  hn::StoreU(hn::Compress(v, mask), d, to);
  return static_cast<size_t>(std::popcount(lane_bits));
}

#endif

// As above, by a mask.
template <class D>
inline size_t CompressTo(D d, hn::Vec<D> v, hn::Mask<D> mask, hn::TFromD<D>* to) {
#if HWY_TARGET == HWY_AVX2
  uint8_t lane_bits = 0;
  hn::StoreMaskBits(d, mask, &lane_bits);
  return CompressTo(d, v, uint64_t{lane_bits}, to);
#else
  hn::StoreU(hn::Compress(v, mask), d, to);
  return hn::CountTrue(d, mask);
#endif
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
