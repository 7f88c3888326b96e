// The Gumbel draw among contenders, which are all that may win it (cuda/weight_histogram_pass.cuh).
#pragma once

#include "cuda/weight_histogram_pass.cuh"
#include "draw/cuda/draw_row.cuh"

namespace sluice::cuda {

inline constexpr int kDrawingThreads = 8 * kWarpSize;

// By the first threads of the first block, from the contenders of the team: the id of the winner,
// or -1 when it is not certain. keeping_of(token) says what is kept.
template <typename KeepingOf>
__device__ int32_t DrawContender(const FirstThreads& first, const WeightHistogramMemory& memory,
                                 int contenders, const WeightUnit& unit, float max,
                                 const NoiseKey& key, KeepingOf keeping_of) {
  const semantics::Stream stream = semantics::GumbelStream(key);
  BestToken best;
  bool is_kept = false;
  for (int i = first.thread(); i < contenders; i += first.threads()) {
    const uint64_t token = memory.contenders.tokens[i];
    const Keeping keeping = keeping_of(token);
    if (keeping == Keeping::kDropped) continue;
    const float x = ValueOf(token);
    const float g = semantics::Gumbel(semantics::NoiseBits(key, stream, IdOf(token)));
    if (best.See(semantics::LogWeight(x, max, unit.scale) + g, x, IdOf(token))) {
      is_kept = keeping == Keeping::kKept;
    }
  }
  const uint64_t winner = first.MaxOfBlock(best.score_and_value);
  const uint64_t complement =
      first.MaxOfBlock(best.score_and_value == winner ? best.id_complement : 0);
  const bool is_winner = best.score_and_value == winner && best.id_complement == complement;
  const bool is_certain = first.CountOfBlock(is_winner && is_kept) > 0;
  const double score =
      static_cast<double>(semantics::ValueOfKey(static_cast<uint32_t>(winner >> 32)));
  // Half a thousandth of what the unit leaves for rounding is for the exact scores.
  if (winner == 0 || !is_certain || !(score >= unit.Floor(max) - 0.0005)) return -1;
  return static_cast<int32_t>(~static_cast<uint32_t>(complement));
}

}  // namespace sluice::cuda
