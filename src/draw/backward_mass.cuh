// The mass of a row behind another read of it, which went up: this one goes down, because what was
// read last is still in the cache. The exact sum of semantics/weight.h, shared out among the blocks
// of the team as the caller likes.
#pragma once

#include "backend/long_mass_sum.cuh"
#include "backend/rows.cuh"

namespace sluice::cuda {

// The part of the row from `begin` to before `end` of `all`.
struct MassShare {
  int begin;
  int end;
  int all;
};

// Of this thread, of the part of its block. max: of the row, which has no status; T = 1.
template <DType kDType>
__device__ uint64_t BackwardMass(const Team& team, const RowsArgument& rows, int row, float max,
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
  const int64_t size = share.end - share.begin;
  auto first_of = [&](int64_t of_warp) {
    return static_cast<int>(pieces * (int64_t{share.begin} * warps + size * of_warp) /
                            (int64_t{share.all} * warps));
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

  const bool has_others = share.begin == 0 && share.end > 0;
  for (int i = team.thread(); has_others && i < before + rows.vocab - behind; i += team.threads()) {
    const int id = i < before ? i : i - before + behind;
    mass += semantics::Weight(Widen<kDType>(data[id]), max, scale);
  }
  return mass;
}

}  // namespace sluice::cuda
