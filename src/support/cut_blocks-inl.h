// Membership of a Cut for 64 elements at a time: semantics::CutWalk with vectors, bit for bit.
//
// Comparisons with the boundaries decide every element that does not equal one. Those that do are
// numbered in their order by counting bits, and only where there are any.
#include <bit>

#include "semantics/cut.h"
#include "semantics/widen.h"

#if defined(SLUICE_SUPPORT_CUT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SUPPORT_CUT_BLOCKS_INL_H_
#undef SLUICE_SUPPORT_CUT_BLOCKS_INL_H_
#else
#define SLUICE_SUPPORT_CUT_BLOCKS_INL_H_
#endif

#include "support/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

constexpr size_t kBlock = 64;
constexpr uint64_t kWholeBlock = ~uint64_t{0};

// A mask as bits, lane 0 lowest. The copy is one instruction: it never reaches memory.
template <class Mask>
inline uint64_t BitsOfMask(Mask mask) {
  const F32 d;
  uint64_t bits = 0;
  hn::StoreMaskBits(d, mask, reinterpret_cast<uint8_t*>(&bits));
  return bits;
}

// The mask of vector `v` of a block.
template <class D>
inline hn::Mask<D> MaskOfBits(D d, uint64_t block_bits, size_t v) {
  const uint64_t bits = block_bits >> (v * hn::Lanes(d));
  return hn::LoadMaskBits(d, reinterpret_cast<const uint8_t*>(&bits));
}

// The lowest n of the set bits.
inline uint64_t LowestBits(uint64_t bits, int64_t n) {
  if (n <= 0) return 0;
  if (n >= std::popcount(bits)) return bits;
  uint64_t rest = bits;
  for (; n > 0; --n) rest &= rest - 1;  // at most once a row and boundary
  return bits ^ rest;
}

// How many elements equal to each boundary have passed.
struct TieCounts {
  int32_t upper = 0;
  int32_t lower = 0;
};

template <class Read>
class CutBlocks {
 public:
  CutBlocks(const semantics::Row& row, const Cut& cut)
      : data_(row.data),
        size_(static_cast<size_t>(row.size)),
        cut_(cut),
        drops_top_(!(cut.upper == semantics::Infinity() && cut.ties_dropped <= 0)) {}

  // One bit for each element [i, i + 64), set when it is kept; none after the row's end. Call it
  // for one block after the other, from 0 or from where `ties` was taken.
  uint64_t At(size_t i) {
    if (i + kBlock > size_) return PartAt(i);
    const F32 d;
    const auto lower = hn::Set(d, cut_.lower);
    auto any = hn::Ge(Read::At(data_, i), lower);
    for (size_t v = hn::Lanes(d); v < kBlock; v += hn::Lanes(d)) {
      any = hn::Or(any, hn::Ge(Read::At(data_, i + v), lower));
    }
    // Elements equal to an upper boundary are passed over uncounted here only when the boundaries
    // are the wrong way round, and then nothing is kept.
    if (hn::AllFalse(d, any)) return 0;

    Comparisons found;
    const auto upper = hn::Set(d, cut_.upper);
    for (size_t v = 0; v < kBlock; v += hn::Lanes(d)) {
      const auto x = Read::At(data_, i + v);
      found.reaches_lower |= BitsOfMask(hn::Ge(x, lower)) << v;
      found.above_lower |= BitsOfMask(hn::Gt(x, lower)) << v;
      if (!drops_top_) continue;
      found.within_upper |= BitsOfMask(hn::Le(x, upper)) << v;
      found.below_upper |= BitsOfMask(hn::Lt(x, upper)) << v;
    }
    return Decide(found);
  }

  TieCounts ties() const { return ties_; }
  void set_ties(TieCounts ties) { ties_ = ties; }

 private:
  struct Comparisons {
    uint64_t reaches_lower = 0;
    uint64_t above_lower = 0;
    uint64_t within_upper = 0;  // the last two only when something is dropped from the top
    uint64_t below_upper = 0;
  };

  uint64_t PartAt(size_t i) {
    Comparisons found;
    for (size_t j = 0; i + j < size_; ++j) {
      const float x = Read::One(data_, i + j);
      found.reaches_lower |= uint64_t{x >= cut_.lower} << j;
      found.above_lower |= uint64_t{x > cut_.lower} << j;
      found.within_upper |= uint64_t{x <= cut_.upper} << j;
      found.below_upper |= uint64_t{x < cut_.upper} << j;
    }
    return Decide(found);
  }

  uint64_t Decide(const Comparisons& found) {
    uint64_t kept = found.reaches_lower;
    const uint64_t at_lower = found.reaches_lower & ~found.above_lower;
    if (at_lower != 0) {
      kept &= ~at_lower | LowestBits(at_lower, int64_t{cut_.ties_kept} - ties_.lower);
      ties_.lower += std::popcount(at_lower);
    }
    if (!drops_top_) return kept;
    const uint64_t at_upper = found.within_upper & ~found.below_upper;
    kept &= found.within_upper;
    if (at_upper != 0) {
      kept &= ~LowestBits(at_upper, int64_t{cut_.ties_dropped} - ties_.upper);
      ties_.upper += std::popcount(at_upper);
    }
    return kept;
  }

  const void* data_;
  size_t size_;
  Cut cut_;
  bool drops_top_;
  TieCounts ties_;
};

// `call` with the reader of a row's dtype.
template <class Call>
inline auto WithReader(DType dtype, Call&& call) {
  switch (dtype) {
    case DType::kF32:
      break;
    case DType::kBf16:
      return call(ReadBf16());
    case DType::kF16:
      return call(ReadF16());
  }
  return call(ReadF32());
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
