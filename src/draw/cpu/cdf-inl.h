// The mass of a kept set and the cdf draw from it, as in semantics/draw/draw.h. Masses are
// integers, so they may be added up in any order.
#include <algorithm>
#include <bit>

#include "semantics/draw/draw.h"

#if defined(SLUICE_DRAW_CPU_CDF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_CDF_INL_H_
#undef SLUICE_DRAW_CPU_CDF_INL_H_
#else
#define SLUICE_DRAW_CPU_CDF_INL_H_
#endif

#include "support/cut_blocks-inl.h"
#include "support/row_status-inl.h"
#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Weighs the kept elements of one row, block after block.
template <class Read>
class KeptWeights {
 public:
  KeptWeights(const semantics::Row& row, float max, float scale)
      : row_(row), max_(max), scale_(scale) {}

  // The mass of a block's kept elements.
  uint64_t Of(size_t i, uint64_t kept) {
    const uint64_t few = OfFew(i, kept);
    return few + sum_.Total();
  }

  // The mass of the whole row, in which there is no NaN.
  uint64_t OfAll() {
    const size_t size = static_cast<size_t>(row_.size);
    return OfEach(0, size, [size](size_t i) {
      return i + kBlock <= size ? kWholeBlock : (uint64_t{1} << (size - i)) - 1;
    });
  }

  // The mass of the blocks in [begin, end), multiples of the block but for the row's end.
  uint64_t OfBlocks(CutBlocks<Read>& blocks, size_t begin, size_t end) {
    return OfEach(begin, end, [&blocks](size_t i) HWY_ATTR { return blocks.At(i); });
  }

 private:
  template <class KeptAt>
  uint64_t OfEach(size_t begin, size_t end, KeptAt kept_at) {
    const size_t most = WeightSum::kMostVectors * hn::Lanes(F32()) / kBlock;
    uint64_t mass = 0;
    size_t since_total = 0;
    for (size_t i = begin; i < end; i += kBlock) {
      const uint64_t kept = kept_at(i);
      if (kept == 0) continue;
      mass += OfFew(i, kept);
      if (++since_total == most) {
        mass += sum_.Total();
        since_total = 0;
      }
    }
    return mass + sum_.Total();
  }

  // A few elements are weighed here, more go into the sum.
  uint64_t OfFew(size_t i, uint64_t kept) {
    const F32 d;
    uint64_t mass = 0;
    if (i + kBlock > static_cast<size_t>(row_.size) || std::popcount(kept) <= 4) {
      for (; kept != 0; kept &= kept - 1) {
        const size_t at = i + static_cast<size_t>(std::countr_zero(kept));
        mass += semantics::Weight(Read::One(row_.data, at), max_, scale_);
      }
      return mass;
    }
    for (size_t v = 0; v * hn::Lanes(d) < kBlock; ++v) {
      const auto x = Read::At(row_.data, i + v * hn::Lanes(d));
      const auto weights = Weigher(max_, scale_)(x);
      sum_.Add(kept == kWholeBlock ? weights : hn::IfThenElseZero(MaskOfBits(d, kept, v), weights));
    }
    return mass;
  }

  semantics::Row row_;
  float max_;
  float scale_;
  WeightSum sum_;
};

template <class Read>
uint64_t KeptMass(const semantics::Row& row, const Cut& cut, float max, float scale) {
  CutBlocks<Read> blocks(row, cut);
  return KeptWeights<Read>(row, max, scale).OfBlocks(blocks, 0, static_cast<size_t>(row.size));
}

template <class Read>
int32_t FirstKept(const semantics::Row& row, const Cut& cut) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const size_t size = static_cast<size_t>(row.size);
  const auto lowest = hn::Set(d, -semantics::Infinity());
  auto largest = lowest;
  float max = -semantics::Infinity();
  CutBlocks<Read> blocks(row, cut);
  for (size_t i = 0; i < size; i += kBlock) {
    uint64_t kept = blocks.At(i);
    if (kept == 0) continue;
    if (i + kBlock <= size) {
      for (size_t v = 0; v * lanes < kBlock; ++v) {
        const auto x = Read::At(row.data, i + v * lanes);
        largest = hn::Max(largest, hn::IfThenElse(MaskOfBits(d, kept, v), x, lowest));
      }
    } else {
      for (; kept != 0; kept &= kept - 1) {
        max = std::max(max, Read::One(row.data, i + static_cast<size_t>(std::countr_zero(kept))));
      }
    }
  }
  max = std::max(max, hn::GetLane(hn::MaxOfLanes(d, largest)));

  CutBlocks<Read> again(row, cut);
  for (size_t i = 0; i < size; i += kBlock) {
    uint64_t kept = again.At(i);
    if (kept == 0) continue;
    if (i + kBlock <= size) {
      uint64_t equal = 0;
      for (size_t v = 0; v < kBlock; v += lanes) {
        equal |= BitsOfMask(hn::Eq(Read::At(row.data, i + v), hn::Set(d, max))) << v;
      }
      kept &= equal;
    }
    for (; kept != 0; kept &= kept - 1) {
      const size_t at = i + static_cast<size_t>(std::countr_zero(kept));
      if (Read::One(row.data, at) == max) return static_cast<int32_t>(at);
    }
  }
  return -1;
}

// The masses of 128 parts of the row find the part that the draw falls into; a part is a few
// hundred blocks at most.
template <class Read>
int32_t DrawCdf(const semantics::Row& row, const Cut& cut, float max, float scale,
                const NoiseKey& key) {
  constexpr size_t kParts = 128;
  const size_t size = static_cast<size_t>(row.size);
  const size_t part_size = (size / kParts / kBlock + 1) * kBlock;
  uint64_t masses[kParts];
  TieCounts ties[kParts];
  uint64_t mass = 0;
  CutBlocks<Read> blocks(row, cut);
  KeptWeights<Read> weights(row, max, scale);
  for (size_t part = 0; part * part_size < size; ++part) {
    ties[part] = blocks.ties();
    const size_t begin = part * part_size;
    masses[part] = weights.OfBlocks(blocks, begin, std::min(begin + part_size, size));
    mass += masses[part];
  }
  if (mass == 0) return FirstKept<Read>(row, cut);

  const uint64_t threshold = semantics::CdfThreshold(key, semantics::CdfStream(key), mass);
  uint64_t running = 0;
  size_t part = 0;
  while (running + masses[part] <= threshold) running += masses[part++];
  blocks.set_ties(ties[part]);
  for (size_t i = part * part_size; i < size; i += kBlock) {
    uint64_t kept = blocks.At(i);
    const uint64_t block_mass = weights.Of(i, kept);
    if (running + block_mass <= threshold) {
      running += block_mass;
      continue;
    }
    for (; kept != 0; kept &= kept - 1) {
      const size_t at = i + static_cast<size_t>(std::countr_zero(kept));
      running += semantics::Weight(Read::One(row.data, at), max, scale);
      if (running > threshold) return static_cast<int32_t>(at);
    }
  }
  return -1;  // not reached: the threshold is below the mass
}

inline semantics::StatusAndMax ExamineRowOfAnyDType(const semantics::Row& row) {
  return WithReader(row.dtype, [&](auto read) HWY_ATTR { return ExamineRow<decltype(read)>(row); });
}

inline int32_t DrawCdfOfAnyDType(const semantics::Row& row, const Cut& cut, float max, float scale,
                                 const NoiseKey& key) {
  return WithReader(row.dtype, [&](auto read) HWY_ATTR {
    return DrawCdf<decltype(read)>(row, cut, max, scale, key);
  });
}

inline int32_t FirstKeptOfAnyDType(const semantics::Row& row, const Cut& cut) {
  return WithReader(row.dtype,
                    [&](auto read) HWY_ATTR { return FirstKept<decltype(read)>(row, cut); });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
