// Scores from planes with AVX-512 VNNI. A file of its own, because Highway's next target requires
// more than that and would leave out processors that have it.
#include "head/certified/score_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "head/certified/cpu/score_vnni.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

// AVX2 is of no use here, but the include guards count on both.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

#if HWY_TARGET == HWY_AVX3
#define SLUICE_HEAD_VNNI 1
#else
#define SLUICE_HEAD_VNNI 0
#endif
#include "head/certified/cpu/score-inl.h"
#undef SLUICE_HEAD_VNNI
#include "head/certified/cpu/mass-inl.h"

#endif

#if HWY_ONCE
namespace sluice {

const ScoreTable kScoreAvx512Vnni = {N_AVX3::vnni::Score, N_AVX3::vnni::Refine,
                                     N_AVX3::SumMassBounds};

}  // namespace sluice
#endif
