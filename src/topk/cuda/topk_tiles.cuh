// The scores of a row that reach a threshold, as bits in the order of their indices.
//
// A row is cut into tiles of 1024 scores. The blocks of a team have neighbouring tiles, and so have
// the warps of a block, so that what a warp finds is in the order of indices. A warp takes a tile
// at a time, or a part of one: 16-byte loads, all of it in flight. A score costs two instructions:
// the sign of its difference to the threshold goes into a word. NaN reaches every threshold, so the
// code that reads the marked scores sees it.
#pragma once

#include <climits>

#include "cuda/ptx.cuh"
#include "cuda/row_slice.cuh"
#include "cuda/vector_slice.cuh"
#include "topk/cuda/topk_bins.cuh"
#include "topk/topk_plan.h"

namespace sluice::cuda {

// What lane `lane` has of a square of pieces becomes what it is given of them: lane i's piece j
// becomes lane j's piece i. kLanes pieces in a word; groups of kLanes lanes.
template <int kLanes>
__device__ uint32_t TransposeBits(uint32_t word, int lane) {
  static_assert(kLanes == 8 || kLanes == 4);
  auto swap = [&](int step, uint32_t low, uint32_t high) {
    const uint32_t other = __shfl_xor_sync(~0u, word, step);
    word = __byte_perm(word, other, (lane & step) == 0 ? low : high);
  };
  swap(kLanes / 2, 0x5410, 0x3276);
  swap(kLanes / 4, 0x6240, 0x3715);
  if constexpr (kLanes == 8) {  // pieces of four bits
    const uint32_t other = __shfl_xor_sync(~0u, word, 1);
    const bool is_even = (lane & 1) == 0;
    const uint32_t mine = is_even ? 0x0f0f0f0fu : 0xf0f0f0f0u;
    word = (word & mine) | (__funnelshift_l(other, other, is_even ? 4 : 28) & ~mine);
  }
  return word;
}

template <DType kDType>
class TiledRow {
 public:
  using Element = typename ElementOf<kDType>::Type;
  static constexpr int kElements = Vector<kDType>::kElements;
  static constexpr int kVectors = 32 / kElements;  // of a lane in a tile
  static constexpr int kVectorsShift = kVectors == 8 ? 3 : 2;

  // `scores` of them, from any address that is a multiple of the element size.
  __device__ TiledRow(const Team& team, const void* row, int scores)
      : row_(static_cast<const Element*>(row)),
        skipped_(static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(Element))),
        end_(skipped_ + scores) {
    const int tiles = Tiles();
    const int shift = ShiftOf(team.blocks());
    first_tile_ = tiles * team.rank() >> shift;
    end_tile_ = tiles * (team.rank() + 1) >> shift;
  }

  __device__ int Scores() const { return end_ - skipped_; }
  __device__ int Tiles() const { return (end_ + kTileScores - 1) / kTileScores; }
  __device__ int words() const { return (end_tile_ - first_tile_) * kTileWords; }  // of this block
  // The number of words of the block that has most.
  __device__ int MostWords(const Team& team) const {
    return ShareOf(Tiles(), ShiftOf(team.blocks())) * kTileWords;
  }
  // The index of a bit of this block's words, by its number.
  __device__ int IndexAt(int bit) const { return first_tile_ * kTileScores + bit - skipped_; }
  __device__ float ScoreAt(int index) const { return Widen<kDType>(row_[index]); }

  // Vectors of 16 bytes that are full, for samples.
  __device__ int FullVectors() const { return end_ / kElements - FirstFull(); }
  __device__ uint4 FullVector(int i) const { return LoadFresh(Vectors() + FirstFull() + i); }

  // All vectors that have scores, and the scores of one of them: its bits of `has`, from `bit` on,
  // where there is one, else any number. Returns the index of its first.
  __device__ int AllVectors() const { return (end_ + kElements - 1) / kElements; }
  __device__ int LoadScores(int vector, float* x, uint32_t& has, int bit) const {
    const int first = vector * kElements - skipped_;
    if (first >= 0 && first + kElements <= Scores()) {
      const Vector<kDType> scores(LoadFresh(Vectors() + vector));
#pragma unroll
      for (int e = 0; e < kElements; ++e) x[e] = scores.x[e];
      has |= ((1u << kElements) - 1) << bit;
    } else {
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        const bool has_one = first + e >= 0 && first + e < Scores();
        x[e] = has_one ? ScoreAt(first + e) : 0.0f;
        has |= has_one ? 1u << (bit + e) : 0;
      }
    }
    return first;
  }

  // This block's words of the first tiles of the row.
  __device__ int WordsOfFirst(int tiles) const {
    return min(max(tiles - first_tile_, 0), end_tile_ - first_tile_) * kTileWords;
  }

  // The part that a warp marks: tiles, or a half or a quarter of one.
  struct WarpTiles {
    int first;
    int end;
    int shift = 0;  // log2 of the parts of a tile
    int part = 0;

    __device__ bool HasVector(int j) const { return j >> (kVectorsShift - shift) == part; }
    __device__ int Words() const { return (end - first) * kTileWords >> shift; }
  };
  // The tiles of this warp, among the first `tiles` of this block. kShares: warps share a tile
  // where there are more of them than tiles.
  template <bool kShares>
  __device__ WarpTiles TilesOfWarp(const Team& team, int tiles = INT_MAX) const {
    const int mine = min(end_tile_ - first_tile_, tiles);
    const int warps = team.threads() / kWarpSize;
    const int warp = team.thread() / kWarpSize;
    if (kShares && 2 * mine <= warps) {
      const int shift = 4 * mine <= warps ? 2 : 1;
      const int tile = warp >> shift;
      const int first = first_tile_ + min(tile, mine);
      return {first, first + (tile < mine ? 1 : 0), shift, warp & ((1 << shift) - 1)};
    }
    const int warps_shift = ShiftOf(warps);
    return {first_tile_ + (mine * warp >> warps_shift),
            first_tile_ + (mine * (warp + 1) >> warps_shift)};
  }
  // The first of this block's words that a warp has marked.
  __device__ int WordOf(const WarpTiles& tiles) const {
    return WordOfTile(tiles.first) + tiles.part * (kTileWords >> tiles.shift);
  }

  // A lane's share of the first tile of its warp, loaded before a threshold is known.
  struct Ahead {
    uint4 raw[kVectors];
    bool is_there = false;
  };
  __device__ void LoadAhead(const Team& team, Ahead& ahead) const {
    const WarpTiles mine = TilesOfWarp<true>(team);
    ahead.is_there = mine.first < mine.end && IsInner(mine.first);
    if (!ahead.is_there) return;
    if (mine.shift == 0) {
      Load(mine.first, team.lane(), ahead.raw);
    } else {
      LoadPart(mine, team.lane(), ahead.raw);
    }
  }

  // Writes this block's words, or the first `most` of them. A SyncBlock must follow before a thread
  // reads words of another warp. threshold: not NaN.
  template <bool kShares>
  __device__ void MarkReaching(const Team& team, float threshold, uint32_t* words,
                               int most = INT_MAX, const Ahead& ahead = {}) const {
    const WarpTiles mine = TilesOfWarp<kShares>(team, most / kTileWords);
    const int lane = team.lane();
    // x - threshold: 0 - 0 is to be +0, whatever the sign of a zero.
    const float subtrahend = threshold == 0.0f ? -0.0f : threshold;
    uint32_t below = 0;
    auto shift_in = [&](const uint4& raw) {
      const Vector<kDType> scores(raw);
#pragma unroll
      for (int e = kElements - 1; e >= 0; --e) {
        below = __funnelshift_l(__float_as_uint(scores.x[e] - subtrahend), below, 1);
      }
    };
    constexpr int kLanes = kVectors;  // with pieces that make a word
    auto put = [&](int tile) {
      uint32_t word = ~TransposeBits<kLanes>(below, lane);
      const int place = lane % kLanes * (kWarpSize / kLanes) + lane / kLanes;
      if (!IsInner(tile)) word &= BitsOfRow(tile * kTileScores + place * 32);
      if (!kShares || mine.HasVector(lane % kLanes)) words[WordOfTile(tile) + place] = word;
    };
    auto shift_in_edge = [&](int tile) {
      const int vector = tile * kTileScores / kElements + lane;
#pragma unroll 1
      for (int j = kVectors - 1; j >= 0; --j) shift_in(LoadAtEdge(vector + j * kWarpSize));
    };
    if (kShares && mine.shift > 0) {
      if (mine.first == mine.end) return;
      if (!IsInner(mine.first)) {
        shift_in_edge(mine.first);
      } else {
        Ahead part = ahead;
        if (!part.is_there) LoadPart(mine, lane, part.raw);
#pragma unroll
        for (int j = kVectors - 1; j >= 0; --j) {
          if (mine.HasVector(j)) {
            shift_in(part.raw[j]);
          } else {
            below <<= kElements;
          }
        }
      }
      put(mine.first);
      return;
    }
    int tile = mine.first;
    if (kShares && ahead.is_there) {
#pragma unroll
      for (int j = kVectors - 1; j >= 0; --j) shift_in(ahead.raw[j]);
      put(tile++);
    }
#pragma unroll 1
    for (; tile < mine.end; ++tile) {
      below = 0;
      if (IsInner(tile)) {
        uint4 raw[kVectors];
        Load(tile, lane, raw);
#pragma unroll
        for (int j = kVectors - 1; j >= 0; --j) shift_in(raw[j]);
      } else {
        shift_in_edge(tile);
      }
      put(tile);
    }
  }

  // visit(x, index) for all scores of the row, by this block.
  template <typename Visit>
  __device__ void ForEachOfRow(const Team& block, Visit visit) const {
    constexpr int kAtOnce = 4;
    const int vectors = (end_ + kElements - 1) / kElements;
#pragma unroll 1
    for (int first = block.thread(); first < vectors; first += kAtOnce * block.threads()) {
      uint4 raw[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int vector = first + i * block.threads();
        const int index = vector * kElements - skipped_;
        if (index >= 0 && index + kElements <= Scores()) raw[i] = LoadFresh(Vectors() + vector);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = (first + i * block.threads()) * kElements - skipped_;
        if (index >= 0 && index + kElements <= Scores()) {
          const Vector<kDType> vector(raw[i]);
#pragma unroll
          for (int e = 0; e < kElements; ++e) visit(vector.x[e], index + e);
        } else {
#pragma unroll 1
          for (int at = max(index, 0); at < min(index + kElements, Scores()); ++at) {
            visit(ScoreAt(at), at);
          }
        }
      }
    }
  }

 private:
  __device__ bool IsInner(int tile) const {
    return tile * kTileScores >= skipped_ && (tile + 1) * kTileScores <= end_;
  }
  __device__ int WordOfTile(int tile) const { return (tile - first_tile_) * kTileWords; }
  // A lane's vectors of a tile, or of a part of one.
  __device__ void Load(int tile, int lane, uint4 (&raw)[kVectors]) const {
    const uint4* const first = Vectors() + tile * kTileScores / kElements + lane;
#pragma unroll
    for (int j = kVectors - 1; j >= 0; --j) raw[j] = LoadFresh(first + j * kWarpSize);
  }
  __device__ void LoadPart(const WarpTiles& tiles, int lane, uint4 (&raw)[kVectors]) const {
    const uint4* const first = Vectors() + tiles.first * kTileScores / kElements + lane;
#pragma unroll
    for (int j = kVectors - 1; j >= 0; --j) {
      if (tiles.HasVector(j)) raw[j] = LoadFresh(first + j * kWarpSize);
    }
  }

  __device__ const uint4* Vectors() const {
    return reinterpret_cast<const uint4*>(row_ - skipped_);
  }
  __device__ int FirstFull() const { return skipped_ == 0 ? 0 : 1; }

  // Nothing outside of the row is read.
  __device__ uint4 LoadAtEdge(int vector) const {
    const int first = vector * kElements - skipped_;
    if (first >= 0 && first + kElements <= Scores()) return LoadFresh(Vectors() + vector);
    uint4 raw = Vector<kDType>::OfMasked();
    Element* elements = reinterpret_cast<Element*>(&raw);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      if (first + e >= 0 && first + e < Scores()) elements[e] = row_[first + e];
    }
    return raw;
  }

  // The bits of the 32 scores from `start` on.
  __device__ uint32_t BitsOfRow(int start) const {
    auto from = [&](int bit) { return bit >= 32 ? 0u : bit <= 0 ? ~0u : ~0u << bit; };
    return from(skipped_ - start) & ~from(end_ - start);
  }

  const Element* row_;
  int skipped_;  // places before the row in its first vector
  int end_;      // past its last score, counted from there
  int first_tile_;
  int end_tile_;
};

}  // namespace sluice::cuda
