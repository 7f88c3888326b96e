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

  // Single elements before the first whole vector, and behind the last one.
  const int beyond = static_cast<int>(reinterpret_cast<uintptr_t>(data) % 16 / sizeof(Element));
  const int before = min(beyond == 0 ? 0 : kElements - beyond, rows.vocab);
  const int vectors = (rows.vocab - before) / kElements;
  const int behind = before + vectors * kElements;
  const uint4* first_vector = reinterpret_cast<const uint4*>(data + before);

  // Vectors of a warp, one a lane.
  const int pieces = (vectors + kWarpSize - 1) / kWarpSize;
  const int warps = team.threads() / kWarpSize;
  const int warp = team.thread() / kWarpSize;
  auto place_of = [&](int64_t part, int64_t parts) {
    return static_cast<int>(pieces * part / parts);
  };
  const int64_t size = share.end - share.begin;
  const int first =
      place_of(int64_t{share.begin} * warps + size * warp, int64_t{share.all} * warps);
  const int end =
      place_of(int64_t{share.begin} * warps + size * (warp + 1), int64_t{share.all} * warps);
  auto load = [&](int piece) {
    const int vector = piece * kWarpSize + team.lane();
    return piece >= first && vector < vectors ? LoadOnce(first_vector + vector)
                                              : Unpacked::OfMasked();
  };

  MassSum part;
  uint32_t addends = 0;
  uint64_t mass = 0;
  FirstVectors loaded;
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce; ++i) loaded[i] = load(end - 1 - i);
#pragma unroll 1
  for (int piece = end - 1; piece >= first; piece -= kVectorsAtOnce) {
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
      loaded[i] = load(piece - i - kVectorsAtOnce);
    }
    addends += kVectorsAtOnce * kElements;
  }
  mass += part.Total(addends);

  const bool has_single = share.begin == 0 && share.end > 0;
  for (int id = team.thread(); has_single && id < before + rows.vocab - behind;
       id += team.threads()) {
    const int at = id < before ? id : id - before + behind;
    mass += semantics::Weight(Widen<kDType>(data[at]), max, scale);
  }
  return mass;
}

}  // namespace sluice::cuda
