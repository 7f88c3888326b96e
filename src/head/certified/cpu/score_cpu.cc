// Scores from planes with vectors (Highway), compiled once for each SIMD target.
#include "head/certified/score_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "head/certified/cpu/score_cpu.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// As in select_cpu.cc, only targets with fma.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#define SLUICE_HEAD_VNNI 0
#include "head/certified/cpu/score-inl.h"
#undef SLUICE_HEAD_VNNI
#include "head/certified/cpu/mass-inl.h"

#endif

#if HWY_ONCE
namespace sluice {

const ScoreTable kScoreAvx2 = {N_AVX2::bytes::Score, N_AVX2::bytes::Refine, N_AVX2::SumMassBounds};
const ScoreTable kScoreAvx512 = {N_AVX3::bytes::Score, N_AVX3::bytes::Refine,
                                 N_AVX3::SumMassBounds};

}  // namespace sluice
#endif
