// Drafts: which rows of a step stand, and rejection sampling by the definition of
// semantics/draft.h.
#include <span>

#include "backend/cuda_check.h"
#include "pipeline/device_kernels.h"
#include "semantics/cut.h"
#include "semantics/draft.h"
#include "semantics/mask.h"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarp = 32;

__device__ int Thread() { return static_cast<int>(threadIdx.x); }

// A stretch of a patched row, one id after the other.
class PatchedStretch {
 public:
  __device__ PatchedStretch(const RejectArgument& argument, int r, int32_t first)
      : row_(RowOf(argument, r)), patch_(PatchOf(argument, r)) {
    int32_t end = patch_.count;
    while (next_ < end) {  // the first id that is not below
      const int32_t middle = next_ + (end - next_) / 2;
      if (patch_.ids[middle] < first) {
        next_ = middle + 1;
      } else {
        end = middle;
      }
    }
  }

  // Of ids that ascend from the first one on, none left out.
  __device__ float operator()(int32_t id) {
    if (next_ < patch_.count && patch_.ids[next_] == id) return patch_.values[next_++];
    if (patch_.others_masked) return -INFINITY;
    if (patch_.allowed != nullptr && !semantics::BitmaskAllows(patch_.allowed, id)) {
      return -INFINITY;
    }
    return row_[id];
  }

 private:
  static __device__ semantics::Row RowOf(const RejectArgument& argument, int r) {
    const int32_t place = argument.rows[r].processed;
    if (place >= 0) {
      return {argument.processed + place * argument.processed_stride, DType::kF32, argument.vocab};
    }
    return {static_cast<const char*>(argument.logits) + r * argument.stride_bytes, argument.dtype,
            argument.vocab};
  }
  static __device__ RowPatch PatchOf(const RejectArgument& argument, int r) {
    return argument.rows[r].processed >= 0 ? RowPatch{} : argument.patches[r];
  }

  semantics::Row row_;
  RowPatch patch_;
  int32_t next_ = 0;
};

struct RejectMemory {
  uint64_t of_warp[kThreads / kWarp];
  float max;
  semantics::uint128_t reciprocal;
  uint64_t p_draft;
  int32_t token;
  int32_t has_bad_probability;
};

struct Sums {
  uint64_t before;  // of the threads before this one
  uint64_t all;
};
// By all threads.
__device__ Sums SumsOf(uint64_t value, RejectMemory& memory) {
  const int lane = Thread() % kWarp, warp = Thread() / kWarp;
  uint64_t through = value;
  for (int step = 1; step < kWarp; step *= 2) {
    const uint64_t other = __shfl_up_sync(~0u, through, static_cast<unsigned>(step));
    if (lane >= step) through += other;
  }
  __syncthreads();
  if (lane == kWarp - 1) memory.of_warp[warp] = through;
  __syncthreads();
  Sums sums{through - value, 0};
  for (int w = 0; w < kThreads / kWarp; ++w) {
    if (w < warp) sums.before += memory.of_warp[w];
    sums.all += memory.of_warp[w];
  }
  return sums;
}

// Each thread has a stretch of ids to itself, so that what it counts and adds up comes in the order
// of ids. The row is read some five times.
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
  const NoiseKey& key = argument.keys[r];
  const float scale = semantics::ScalesOf(params).draw;
  const int32_t share = (argument.vocab + kThreads - 1) / kThreads;
  const int32_t first = min(Thread() * share, argument.vocab);
  const int32_t end = min(first + share, argument.vocab);
  if (Thread() == 0) {
    memory.max = -INFINITY;
    memory.p_draft = 0;
    memory.token = -1;
    memory.has_bad_probability = 0;
  }
  __syncthreads();

  float max = -INFINITY;
  uint32_t at_upper = 0, at_lower = 0;
  {
    PatchedStretch x_of(argument, r, first);
    for (int32_t id = first; id < end; ++id) {
      const float x = x_of(id);
      max = x > max ? x : max;
      at_upper += x == cut.upper ? 1 : 0;
      at_lower += x == cut.lower ? 1 : 0;
      if (given != nullptr && !(given[id] >= 0.0f && given[id] <= 1.0f)) {
        memory.has_bad_probability = 1;
      }
    }
  }
  const uint64_t ties = SumsOf(static_cast<uint64_t>(at_upper) << 32 | at_lower, memory).before;
  Cut rest = cut;  // what is left of the ties for this thread
  rest.ties_dropped -= static_cast<int32_t>(ties >> 32);
  rest.ties_kept -= static_cast<int32_t>(ties & 0xffffffffu);
  for (int step = kWarp / 2; step > 0; step /= 2) {
    max = fmaxf(max, __shfl_xor_sync(~0u, max, step));
  }
  __syncthreads();
  if (Thread() % kWarp == 0) memory.of_warp[Thread() / kWarp] = __float_as_uint(max);
  __syncthreads();
  for (int w = 0; w < kThreads / kWarp; ++w) {
    max = fmaxf(max, __uint_as_float(static_cast<uint32_t>(memory.of_warp[w])));
  }
  if (memory.has_bad_probability != 0) {
    if (Thread() == 0) {
      result = TokenResult{};
      result.status = RowStatus::kBadParam;
      result.cut = semantics::CutOfStatus(RowStatus::kBadParam);
      argument.accepted[r] = 0;
    }
    return;
  }

  // visit(id, weight) for the kept tokens of this thread.
  auto for_each_kept = [&](auto visit) {
    PatchedStretch x_of(argument, r, first);
    semantics::CutWalk walk(rest);
    for (int32_t id = first; id < end; ++id) {
      const float x = x_of(id);
      if (walk.Keeps(x)) visit(id, semantics::Weight(x, max, scale));
    }
  };
  uint64_t weight = 0;
  for_each_kept([&](int32_t, uint64_t w) { weight += w; });
  const uint64_t mass = SumsOf(weight, memory).all;
  if (Thread() == 0) {
    memory.reciprocal = mass == 0 ? 0 : (static_cast<semantics::uint128_t>(1) << 103) / mass;
  }
  __syncthreads();
  const semantics::uint128_t reciprocal = memory.reciprocal;
  auto p_of = [&](uint64_t w) {  // semantics::Probability40 with the division done once
    return static_cast<uint64_t>((reciprocal * w) >> 63);
  };
  auto q_of = [&](int32_t id) {
    if (given != nullptr) return semantics::Fixed40(given[id]);
    return id == row.draft ? semantics::kFullWeight : 0;
  };
  uint64_t residual = 0;
  for_each_kept([&](int32_t id, uint64_t w) {
    const uint64_t p = p_of(w);
    if (id == row.draft) memory.p_draft = p;
    residual += semantics::PositivePart(p, q_of(id));
  });
  const Sums residuals = SumsOf(residual, memory);
  const bool is_accepted = semantics::AcceptsDraft(
      memory.p_draft, q_of(row.draft), semantics::Uniform32(key, semantics::Stream::kAcceptance));
  if (!is_accepted && residuals.all > 0) {
    const uint64_t threshold =
        semantics::CdfThreshold(key, semantics::Stream::kRecovered, residuals.all);
    if (residuals.before <= threshold && threshold < residuals.before + residual) {
      uint64_t running = residuals.before;
      int32_t token = -1;
      for_each_kept([&](int32_t id, uint64_t w) {
        running += semantics::PositivePart(p_of(w), q_of(id));
        if (token < 0 && running > threshold) token = id;
      });
      memory.token = token;
    }
  } else if (!is_accepted) {  // the first that is kept
    semantics::Token best{0.0f, -1};
    PatchedStretch x_of(argument, r, first);
    semantics::CutWalk walk(rest);
    for (int32_t id = first; id < end; ++id) {
      const semantics::Token token{x_of(id), id};
      if (walk.Keeps(token.x) && (best.id < 0 || semantics::Before(token, best))) best = token;
    }
    first_of[Thread()] = best;
    __syncthreads();
    if (Thread() == 0) {
      semantics::Token winner{0.0f, -1};
      for (int t = 0; t < kThreads; ++t) {
        const semantics::Token token = first_of[t];
        if (token.id >= 0 && (winner.id < 0 || semantics::Before(token, winner))) winner = token;
      }
      memory.token = winner.id;
    }
  }
  __syncthreads();
  if (Thread() == 0) {
    const Cut kept = cut;
    result = TokenResult{};
    result.cut = kept;
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
      if (argument.results != nullptr) {
        const bool other = is_cdf && argument.cdf_results != nullptr && accepted < 0;
        result = other ? argument.cdf_results[r] : argument.results[r];
      } else {
        const bool other = is_cdf && argument.cdf_ids != nullptr;
        result.id = other ? argument.cdf_ids[r] : argument.ids[r];
        result.status = other ? argument.cdf_statuses[r] : argument.statuses[r];
      }
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
  RejectKernel<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      argument);
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
