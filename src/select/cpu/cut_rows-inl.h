// A Cut applied to the rows it was made of: masked in place, or as a bitmask.
#include <cstring>

#include "select/select_table.h"
#include "support/rows.h"

#if defined(SLUICE_SELECT_CPU_CUT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_CUT_ROWS_INL_H_
#undef SLUICE_SELECT_CPU_CUT_ROWS_INL_H_
#else
#define SLUICE_SELECT_CPU_CUT_ROWS_INL_H_
#endif

#include "support/cut_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// A block of which everything is kept is not written; elsewhere kept elements get their own bits.
template <class Read, typename Element>
void MaskRow(const semantics::Row& row, const Cut& cut, Element* elements, Element minus_infinity) {
  const hn::ScalableTag<Element> d;
  const auto masked = hn::Set(d, minus_infinity);
  const size_t size = static_cast<size_t>(row.size);
  CutBlocks<Read> blocks(row, cut);
  for (size_t i = 0; i < size; i += kBlock) {
    const uint64_t kept = blocks.At(i);
    if (kept == kWholeBlock) continue;
    if (i + kBlock > size) {
      for (size_t j = 0; i + j < size; ++j) {
        if (((kept >> j) & 1) == 0) elements[i + j] = minus_infinity;
      }
    } else if (kept == 0) {
      for (size_t v = 0; v < kBlock; v += hn::Lanes(d)) hn::StoreU(masked, d, elements + i + v);
    } else {
      for (size_t v = 0; v * hn::Lanes(d) < kBlock; ++v) {
        Element* to = elements + i + v * hn::Lanes(d);
        hn::StoreU(hn::IfThenElse(MaskOfBits(d, kept, v), hn::LoadU(d, to), masked), d, to);
      }
    }
  }
}

inline void MaskRows(const MutableLogitsView& logits, std::span<const Cut> cuts,
                     const Execution& execution) {
  ForEachRow(execution.parallel, logits.rows, [&](int64_t r, int) HWY_ATTR {
    const Cut& cut = cuts[static_cast<size_t>(r)];
    if (cut.status != RowStatus::kOk) return;
    const semantics::Row row{logits.Row(r), logits.dtype, logits.vocab};
    switch (logits.dtype) {
      case DType::kF32:
        return MaskRow<ReadF32>(row, cut, static_cast<uint32_t*>(logits.Row(r)), 0xff800000u);
      case DType::kBf16:
        return MaskRow<ReadBf16>(row, cut, static_cast<uint16_t*>(logits.Row(r)), uint16_t{0xff80});
      case DType::kF16:
        return MaskRow<ReadF16>(row, cut, static_cast<uint16_t*>(logits.Row(r)), uint16_t{0xfc00});
    }
  });
}

template <class Read>
void KeptBitmaskOfRow(const semantics::Row& row, const Cut& cut, int32_t* bitmask) {
  const size_t words = (static_cast<size_t>(row.size) + 31) / 32;
  CutBlocks<Read> blocks(row, cut);
  for (size_t w = 0; w < words; w += 2) {
    const uint64_t kept = blocks.At(32 * w);
    bitmask[w] = static_cast<int32_t>(static_cast<uint32_t>(kept));
    if (w + 1 < words) bitmask[w + 1] = static_cast<int32_t>(static_cast<uint32_t>(kept >> 32));
  }
}

inline void KeptBitmaskOfRows(const LogitsView& logits, std::span<const Cut> cuts,
                              std::span<int32_t> bitmask, const Execution& execution) {
  const size_t words = (static_cast<size_t>(logits.vocab) + 31) / 32;
  ForEachRow(execution.parallel, logits.rows, [&](int64_t r, int) HWY_ATTR {
    const std::span<int32_t> kept = bitmask.subspan(static_cast<size_t>(r) * words, words);
    const Cut& cut = cuts[static_cast<size_t>(r)];
    if (cut.status != RowStatus::kOk) {
      std::memset(kept.data(), 0, kept.size_bytes());
      return;
    }
    const semantics::Row row{logits.Row(r), logits.dtype, logits.vocab};
    WithReader(row.dtype, [&](auto read) HWY_ATTR {
      KeptBitmaskOfRow<decltype(read)>(row, cut, kept.data());
    });
  });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
