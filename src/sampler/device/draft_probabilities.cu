// What Sluice draft models said of their drafts: the probabilities of their rows in O(1), so that
// rejection against them can look up one token at a time.
#include "cuda/cuda_check.h"
#include "sampler/device/device_drafts.cuh"
#include "semantics/row_status.h"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

// In shared memory.
struct DistributionMemory {
  uint64_t of_warp[kRejectThreads / kWarp];
  int32_t last_dropped;
  int32_t last_kept;
};

// semantics::CutProbabilities of one row a block. Each thread has a stretch of ids to itself.
__global__ void __launch_bounds__(kRejectThreads, 1)
    DraftDistributionKernel(const DraftModelRow* models, DraftDistribution* distributions,
                            int32_t vocab) {
  __shared__ DistributionMemory memory;
  const DraftModelRow& model = models[blockIdx.x];
  DraftDistribution& distribution = distributions[blockIdx.x];
  const semantics::Row row{model.logits, model.dtype, vocab};
  if (row.data == nullptr) {
    if (Thread() == 0) distribution.row.data = nullptr;
    return;
  }
  const Cut cut = model.cut;
  if (Thread() == 0) {
    memory.last_dropped = cut.ties_dropped > 0 ? semantics::kAfterAllTies : -1;
    memory.last_kept = cut.ties_kept > 0 ? semantics::kAfterAllTies : -1;
  }
  const int32_t share = (vocab + kRejectThreads - 1) / kRejectThreads;
  const int32_t first = min(Thread() * share, vocab);
  const int32_t end = min(first + share, vocab);
  float max = -INFINITY;
  bool has_support = false, has_nan = false, has_inf = false;
  uint32_t at_upper = 0, at_lower = 0;
  for (int32_t id = first; id < end; ++id) {
    const float x = row[id];
    const bool is_finite = x > -INFINITY && x < INFINITY;
    has_support = has_support || x != -INFINITY;
    has_nan = has_nan || x != x;
    has_inf = has_inf || x == INFINITY;
    if (is_finite && x > max) max = x;
    at_upper += x == cut.upper ? 1 : 0;
    at_lower += x == cut.lower ? 1 : 0;
  }
  RowStatus status = __syncthreads_or(has_support) != 0 ? RowStatus::kOk : RowStatus::kEmptySupport;
  if (__syncthreads_or(has_inf) != 0) status = RowStatus::kPosInfInput;
  if (__syncthreads_or(has_nan) != 0) status = RowStatus::kNanInput;
  status = semantics::Worse(status, model.status);
  if (status != RowStatus::kOk) {
    if (Thread() == 0) {
      distribution.row = row;
      distribution.status = status;
    }
    return;
  }

  max = MaxOf(max, memory.of_warp);
  const float scale = semantics::ScalesOf(model.params).draw;
  Cut whole = cut;  // of all threads
  whole.ties_dropped = ::max(cut.ties_dropped, 0);
  whole.ties_kept = ::max(cut.ties_kept, 0);
  const Cut rest = RestOf(whole, at_upper, at_lower, memory.of_warp);
  int32_t upper_ties = 0, lower_ties = 0;
  semantics::CutWalk walk(rest);
  uint64_t weight = 0;
  for (int32_t id = first; id < end; ++id) {
    const float x = row[id];
    if (x == cut.upper && ++upper_ties == rest.ties_dropped) memory.last_dropped = id;
    if (x == cut.lower && ++lower_ties == rest.ties_kept) memory.last_kept = id;
    if (walk.Keeps(x)) weight += semantics::Weight(x, max, scale);
  }
  const uint64_t mass = SumsOf(weight, memory.of_warp).all;
  if (Thread() == 0) {
    distribution.row = row;
    distribution.cut = {cut.upper, cut.lower, memory.last_dropped, memory.last_kept};
    distribution.max = max;
    distribution.scale = scale;
    distribution.reciprocal = ReciprocalOf(mass);
    distribution.status = RowStatus::kOk;
  }
}

}  // namespace

void LaunchDraftDistributions(const DraftModelRow* models, DraftDistribution* distributions,
                              int32_t vocab, int64_t rows, void* stream) {
  if (rows == 0) return;
  DraftDistributionKernel<<<static_cast<unsigned>(rows), kRejectThreads, 0,
                            static_cast<cudaStream_t>(stream)>>>(models, distributions, vocab);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
