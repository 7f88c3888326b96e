// A block's share of the mass of a row, the exact sum of semantics/weight.h. It is read from its
// end down, because what another read went up to last is still in the cache.
#pragma once

#include "backend/long_mass_sum.cuh"
#include "backend/rows.cuh"

namespace sluice::cuda {

// One of `all` equal parts of the row.
struct MassShare {
  int part;
  int all;
};

// Of this thread. max: of the row, which has no status; T = 1.
template <DType kDType>
__device__ uint64_t MassOfShare(const Team& team, const RowsArgument& rows, int row, float max,
                                const MassShare& share) {
  using Unpacked = Vector<kDType>;
  using Element = typename Unpacked::Element;
  constexpr int kElements = Unpacked::kElements;
  const Element* data = static_cast<const Element*>(RowOf(rows, row));
  const float scale = semantics::TemperatureScale(1.0f);

  // Elements before the first whole vector, and behind the last one that a warp has.
  constexpr int kElementsOfPiece = kElements * kWarpSize;
  const int beyond = static_cast<int>(reinterpret_cast<uintptr_t>(data) % 16 / sizeof(Element));
  const int before = min(beyond == 0 ? 0 : kElements - beyond, rows.vocab);
  const int pieces = (rows.vocab - before) / kElementsOfPiece;
  const int behind = before + pieces * kElementsOfPiece;

  const int warps = team.threads() / kWarpSize;
  const int warp = team.thread() / kWarpSize;
  auto first_of = [&](int of_warp) {
    return static_cast<int>(int64_t{pieces} * (share.part * warps + of_warp) / (share.all * warps));
  };
  const int first = first_of(warp);
  const uint4* vectors = reinterpret_cast<const uint4*>(data + before) + team.lane();
  auto load = [&](int piece) { return LoadOnce(vectors + int64_t{piece} * kWarpSize); };
  auto load_any = [&](int piece) { return piece >= first ? load(piece) : Unpacked::OfMasked(); };

  MassSum part;
  uint32_t addends = 0;
  uint64_t mass = 0;
  int piece = first_of(warp + 1) - 1;
  FirstVectors loaded;
  // A vector is loaded in the place of the one that was looked at, and a load that may not be done
  // would be awaited there: those are left to the last rounds.
  auto add = [&](auto load_next) {
    if (addends > MassSum::kMostAddends - kVectorsAtOnce * kElements) {
      mass += part.Total(addends);
      part = MassSum();
      addends = 0;
    }
#pragma unroll
    for (int i = 0; i < kVectorsAtOnce; ++i) {
      const Unpacked vector(loaded[i]);
#pragma unroll
      for (const float x : vector.x) part.Add(MassSum::Of(x, max, scale));
      loaded[i] = load_next(piece - i - kVectorsAtOnce);
    }
    addends += kVectorsAtOnce * kElements;
  };
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce; ++i) loaded[i] = load_any(piece - i);
#pragma unroll 1
  for (; piece - 2 * kVectorsAtOnce + 1 >= first; piece -= kVectorsAtOnce) add(load);
#pragma unroll 1
  for (; piece >= first; piece -= kVectorsAtOnce) add(load_any);
  mass += part.Total(addends);

  const bool has_others = share.part == 0;
  for (int i = team.thread(); has_others && i < before + rows.vocab - behind; i += team.threads()) {
    const int id = i < before ? i : i - before + behind;
    mass += semantics::Weight(Widen<kDType>(data[id]), max, scale);
  }
  return mass;
}

}  // namespace sluice::cuda
