// Chains of drafts: which rows of a step stand, and rejection sampling by the definition of
// semantics/draw/draft.h.
#include "cuda/cuda_check.h"
#include "sampler/device/device_drafts.cuh"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = kRejectThreads;

struct RejectMemory {
  uint64_t of_warp[kThreads / kWarp];
  semantics::uint128_t reciprocal;
  uint64_t p_draft;
  int32_t token;
  int32_t has_bad_probability;
};

// Each thread has a stretch of ids to itself, so that what it counts and adds up comes in the order
// of ids. The row is read some five times.
template <bool kHasDraftModels>
__global__ void __launch_bounds__(kThreads)
    RejectKernel(const __grid_constant__ RejectArgument argument) {
  __shared__ RejectMemory memory;
  __shared__ semantics::Token first_of[kThreads];
  const int r = static_cast<int>(blockIdx.x);
  const StepRow row = argument.rows[r];
  const RequestRecord& record = argument.store.records[row.slot];
  const SelectParams& params = argument.params[r];
  if (record.draft_mode != DraftMode::kReject || row.draft < 0 || semantics::IsGreedy(params)) {
    if (Thread() == 0) argument.accepted[r] = -1;  // it must match
    return;
  }
  TokenResult& result = argument.results[r];
  const Cut cut = result.cut;
  if (cut.status != RowStatus::kOk) {
    if (Thread() == 0) argument.accepted[r] = 0;
    return;
  }
  const float* given = argument.probabilities == nullptr ? nullptr : argument.probabilities[r];
  const DraftDistribution* distribution = nullptr;
  if constexpr (kHasDraftModels) {
    if (argument.distributions[r].row.data != nullptr) distribution = argument.distributions + r;
    if (distribution != nullptr && distribution->status != RowStatus::kOk) {
      if (Thread() == 0) {
        result = ResultOfStatus(distribution->status);
        argument.accepted[r] = 0;
      }
      return;
    }
  }
  const NoiseKey& key = argument.keys[r];
  const float scale = semantics::ScalesOf(params).draw;
  if (Thread() == 0) {
    memory.p_draft = 0;
    memory.token = -1;
    memory.has_bad_probability = 0;
  }
  __syncthreads();

  const KeptStretch kept(argument, r, cut, scale, memory.of_warp, [&](int32_t id) {
    if (given != nullptr && !(given[id] >= 0.0f && given[id] <= 1.0f)) {
      memory.has_bad_probability = 1;
    }
  });
  if (memory.has_bad_probability != 0) {
    if (Thread() == 0) {
      result = ResultOfStatus(RowStatus::kBadParam);
      argument.accepted[r] = 0;
    }
    return;
  }

  uint64_t weight = 0;
  kept.ForEach([&](int32_t, uint64_t w) { weight += w; });
  const uint64_t mass = SumsOf(weight, memory.of_warp).all;
  if (Thread() == 0) memory.reciprocal = ReciprocalOf(mass);
  __syncthreads();
  const semantics::uint128_t reciprocal = memory.reciprocal;
  auto q_of = [&](int32_t id) {
    if (given != nullptr) return semantics::Fixed40(given[id]);
    if constexpr (kHasDraftModels) {
      if (distribution != nullptr) return ProbabilityOf(*distribution, id);
    }
    return id == row.draft ? semantics::kFullWeight : 0;
  };
  auto residual_of = [&](int32_t id, uint64_t w) {
    return semantics::PositivePart(Probability(reciprocal, w), q_of(id));
  };
  uint64_t residual = 0;
  kept.ForEach([&](int32_t id, uint64_t w) {
    if (id == row.draft) memory.p_draft = Probability(reciprocal, w);
    residual += residual_of(id, w);
  });
  const Sums residuals = SumsOf(residual, memory.of_warp);
  const bool is_accepted = semantics::AcceptsDraft(
      memory.p_draft, q_of(row.draft), semantics::Uniform32(key, semantics::Stream::kAcceptance));
  if (!is_accepted && residuals.all > 0) {
    const uint64_t threshold =
        semantics::CdfThreshold(key, semantics::Stream::kRecovered, residuals.all);
    if (residuals.before <= threshold && threshold < residuals.before + residual) {
      memory.token = kept.IdAbove(threshold, residuals.before, residual_of);
    }
  } else if (!is_accepted) {  // the first that is kept
    const int32_t token = kept.First(first_of);
    if (Thread() == 0) memory.token = token;
  }
  __syncthreads();
  if (Thread() == 0) {
    result = TokenResult{};
    result.cut = cut;
    result.id = is_accepted ? row.draft : memory.token;
    argument.accepted[r] = is_accepted ? 1 : 0;
  }
}

__global__ void VerdictKernel(const __grid_constant__ VerdictArgument argument) {
  const int32_t q = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (q >= argument.requests) return;
  const StepSpan span = argument.spans[q];
  const bool is_cdf = argument.store.records[span.slot].draw_method == DrawMethod::kCdf;
  int32_t emitted = 0;
  bool goes_on = true;
  for (int32_t d = 0; d < span.rows; ++d) {
    const int32_t r = span.first_row + d;
    TokenResult result;
    bool is_accepted = false;
    if (goes_on) {
      const int32_t accepted = argument.accepted == nullptr ? -1 : argument.accepted[r];
      result = SampledAt(argument, r, is_cdf, accepted);
      is_accepted = accepted < 0 ? result.id == argument.rows[r].draft : accepted == 1;
      emitted += result.id >= 0 ? 1 : 0;
    }
    goes_on = goes_on && d + 1 < span.rows && result.id >= 0 && is_accepted;
    argument.ids[r] = result.id;
    argument.statuses[r] = result.status;
    if (argument.cuts != nullptr) argument.cuts[r] = result.cut;
  }
  argument.emitted[q] = emitted;
}

}  // namespace

void LaunchReject(const RejectArgument& argument, int64_t rows, void* stream) {
  if (rows == 0) return;
  auto* const kernel = argument.distributions == nullptr ? RejectKernel<false> : RejectKernel<true>;
  kernel<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchVerdict(const VerdictArgument& argument, void* stream) {
  if (argument.requests == 0) return;
  constexpr unsigned kRequestsABlock = 32;
  const unsigned blocks =
      (static_cast<unsigned>(argument.requests) + kRequestsABlock - 1) / kRequestsABlock;
  VerdictKernel<<<blocks, kRequestsABlock, 0, static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
