// The Gumbel draw from everything that is not masked, in one read: 16 bits of noise and a bound of
// the best score leave a few contenders, which alone are scored.
//
// The bound is a guess: what a sample of the row draws is at least log2 of its mass less 4 in all
// but one row of ten million. The certificate: the best contender reaches the bound.
#pragma once

#include "backend/token_list.cuh"
#include "backend/vector_slice.cuh"
#include "draw/score_kept.cuh"

namespace sluice::cuda {

// 16-bit fields of noise for the tokens of a vector, by one Philox block, or by two where the
// vectors of a row are not aligned to ids.
template <DType kDType>
class NoiseFields {
 public:
  static constexpr int kElements = Vector<kDType>::kElements;

  __device__ NoiseFields(const NoiseKey& key, int id) : first_(static_cast<uint32_t>(id) >> 3) {
    const semantics::Stream stream = semantics::GumbelStream(key);
    is_aligned_ = id % kElements == 0;  // the same for all vectors of a row
    block_ = semantics::NoiseBlock(key, stream, first_, 0);
    if (!is_aligned_) {
      next_ = semantics::NoiseBlock(key, stream, first_ + 1, 0);
    } else if (kElements < 8 && (id & 4) != 0) {
      block_.word[0] = block_.word[2];
      block_.word[1] = block_.word[3];
    }
  }

  // Of element e, whose token is id.
  __device__ uint32_t operator()(int e, int id) const {
    if (is_aligned_) return (block_.word[e / 2] >> (16 * (e % 2))) & 0xffffu;
    const semantics::Block& block = static_cast<uint32_t>(id) >> 3 == first_ ? block_ : next_;
    const uint32_t low = (id & 2) != 0 ? block.word[1] : block.word[0];
    const uint32_t high = (id & 2) != 0 ? block.word[3] : block.word[2];
    return (((id & 4) != 0 ? high : low) >> (16 * (id & 1))) & 0xffffu;
  }

 private:
  uint32_t first_;
  bool is_aligned_;
  semantics::Block block_;
  semantics::Block next_;
};

struct DrawnFromAll {
  int32_t id;  // negative: the row has to be drawn from otherwise
  Cut cut;
};

// list: for the contenders of each block. The same answer in all threads.
template <DType kDType>
__device__ DrawnFromAll DrawFromAll(const Team& team, const VectorSlice<kDType>& slice,
                                    FirstVectors<kDType>& loaded, TokenList& list, float scale,
                                    const NoiseKey& key) {
  using Unpacked = Vector<kDType>;
  DrawnFromAll drawn;
  drawn.id = -1;
  Clear(team, list);
  float largest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce<kDType>; ++i) {
    const Unpacked vector(loaded[i]);
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) largest = fmaxf(largest, vector.x[e]);
  }
  const float sampled =
      semantics::ValueOfKey(static_cast<uint32_t>(team.Max(semantics::OrderKey(largest))));
  if (!(sampled > -INFINITY && sampled < INFINITY)) return drawn;
  float mass = 0.0f;
#pragma unroll
  for (int i = 0; i < kVectorsAtOnce<kDType>; ++i) {
    const Unpacked vector(loaded[i]);
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) {
      mass += exp2f(fmaxf((vector.x[e] - sampled) * scale, -100.0f));
    }
  }
  const float unit = 0x1p20f;
  const float total = static_cast<float>(team.Sum(static_cast<uint64_t>(mass * unit))) / unit;
  const float floor = sampled * scale + log2f(total) - 4.0f;
  if (!(fabsf(floor) < 4000.0f)) return drawn;  // the bound would not cover its rounding

  // What MayReach asks, with the constants moved into the exponent.
  const float offset = 15.4712f + 0.00144f - floor;  // log2(65536 ln 2)
  float least = INFINITY;
  uint32_t ties = 0, support = 0;
  bool is_spoilt = false;
  auto see = [&](float x, int id, uint32_t h) {
    is_spoilt |= !(x < INFINITY);
    if (x == -INFINITY) return;
    ++support;
    largest = fmaxf(largest, x);
    ties = x < least ? 1 : ties + (x == least ? 1 : 0);
    least = fminf(least, x);
    if (!(static_cast<float>(h) > exp2f(__fmaf_rn(x, scale, offset)) + 1.0f)) Push(list, x, id);
  };
  slice.ForEachAtEdges([&](float x, int id) {
    see(x, id, semantics::NoiseHigh(key, semantics::GumbelStream(key), id));
  });
  slice.Stream(loaded, [&](const Unpacked& vector, int id) {
    const NoiseFields<kDType> fields(key, id);
#pragma unroll
    for (int e = 0; e < Unpacked::kElements; ++e) see(vector.x[e], id + e, fields(e, id + e));
  });
  team.SyncBlock();
  const bool is_bad = is_spoilt || list.count >= kListCapacity;
  const uint64_t team_max = team.Max(is_bad ? ~0u : semantics::OrderKey(largest));
  if (team_max == ~0u) return drawn;
  const float max = semantics::ValueOfKey(static_cast<uint32_t>(team_max));

  BestToken best;
  for (uint32_t i = static_cast<uint32_t>(team.thread()); i < list.count;
       i += static_cast<uint32_t>(team.threads())) {
    const float x = ValueOf(list.key[i]);
    const int32_t id = IdOf(list.key[i]);
    const float g = semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), id));
    best.See(semantics::LogWeight(x, max, scale) + g, x, id);
  }
  const uint64_t winner = team.Max(best.score_and_value);
  const uint64_t complement = team.Max(best.score_and_value == winner ? best.id_complement : 0);
  const double score = semantics::ValueOfKey(static_cast<uint32_t>(winner >> 32));
  const double bound =
      static_cast<double>(floor) - static_cast<double>(max) * static_cast<double>(scale);
  if (winner == 0 || !(score >= bound - 0.0005)) return drawn;

  const uint32_t least_key = ~static_cast<uint32_t>(team.Max(~semantics::OrderKey(least)));
  drawn.cut.lower = semantics::ValueOfKey(least_key);
  drawn.cut.ties_kept = static_cast<int32_t>(
      team.Sum(semantics::OrderKey(least) == least_key && support > 0 ? ties : 0));
  drawn.cut.count = static_cast<int32_t>(team.Sum(support));
  drawn.id = static_cast<int32_t>(~static_cast<uint32_t>(complement));
  return drawn;
}

}  // namespace sluice::cuda
