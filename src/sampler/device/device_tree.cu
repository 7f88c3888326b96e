// Trees of drafts: rejection sampling of the siblings of a node by the definition of
// semantics/draw/draft.h, which path of a tree stands, and the rows of that path moved together.
#include "cuda/cuda_check.h"
#include "sampler/device/device_drafts.cuh"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

// What a draft was drawn from.
struct Source {
  const float* given;
  const DraftDistribution* distribution;
  int32_t draft;

  __device__ uint64_t operator()(int32_t id) const {
    if (given != nullptr) return semantics::Fixed40(given[id]);
    if (distribution != nullptr) return ProbabilityOf(*distribution, id);
    return id == draft ? semantics::kFullWeight : 0;
  }
};

struct Rejected {
  Source q;
  semantics::uint128_t reciprocal;  // of the mass that it left
};

// In shared memory.
struct TreeMemory {
  uint64_t of_warp[kRejectThreads / kWarp];
  semantics::uint128_t reciprocal;
  uint64_t p_draft;
  int32_t token;
  int32_t has_bad_probability;
  Rejected rejected[semantics::kMostTries];
  semantics::Token first_of[kRejectThreads];
};

// The first child row of `node` among those from `next` on, as a row of its request.
__device__ int32_t NextChild(const TreeRow* of_request, const TreeRow& node, int32_t next) {
  while (next < node.rows && !of_request[next].IsChildOf(node)) ++next;
  return next;
}

// As RejectKernel. What the drafts before have left of P is found again for each token that the
// row keeps, because there is no room for it.
__global__ void __launch_bounds__(kRejectThreads, 1)
    RejectTreeKernel(const __grid_constant__ RejectArgument argument) {
  __shared__ TreeMemory memory;
  const int r = static_cast<int>(blockIdx.x);
  const StepRow row = argument.rows[r];
  const TreeRow node = argument.trees[r];
  const RequestRecord& record = argument.store.records[row.slot];
  const SelectParams& params = argument.params[r];
  if (record.draft_mode != DraftMode::kReject || row.draft < 0 || semantics::IsGreedy(params)) {
    if (Thread() == 0) argument.accepted[r] = -1;  // it must match
    return;
  }
  auto conclude = [&](const TokenResult& result, int32_t accepted) {
    if (Thread() != 0) return;
    argument.results[r] = result;
    argument.accepted[r] = accepted;
  };
  TokenResult result;
  result.cut = argument.results[r].cut;
  if (result.cut.status != RowStatus::kOk) {
    if (Thread() == 0) argument.accepted[r] = 0;
    return;
  }
  const NoiseKey& key = argument.keys[r];
  const float scale = semantics::ScalesOf(params).draw;
  const KeptStretch kept(argument, r, result.cut, scale, memory.of_warp, [](int32_t) {});
  uint64_t weight = 0;
  kept.ForEach([&](int32_t, uint64_t w) { weight += w; });
  const uint64_t mass = SumsOf(weight, memory.of_warp).all;
  if (Thread() == 0) memory.reciprocal = ReciprocalOf(mass);
  __syncthreads();
  const semantics::uint128_t reciprocal = memory.reciprocal;

  const int32_t first_row = r - node.row;
  const TreeRow* of_request = argument.trees + first_row;
  int32_t tries = 0;
  int32_t child = NextChild(of_request, node, node.row + 1);
  while (true) {
    const int32_t draft = first_row + child - 1;
    const Source q{
        argument.probabilities[draft],
        argument.distributions == nullptr || argument.distributions[draft].row.data == nullptr
            ? nullptr
            : argument.distributions + draft,
        argument.drafts[row.first_draft + child - 1]};
    if (Thread() == 0) {
      memory.p_draft = 0;
      memory.has_bad_probability = 0;
    }
    __syncthreads();
    RowStatus status = q.distribution == nullptr ? RowStatus::kOk : q.distribution->status;
    if (q.given != nullptr) {
      for (int32_t id = Thread(); id < argument.vocab; id += kRejectThreads) {
        if (!(q.given[id] >= 0.0f && q.given[id] <= 1.0f)) memory.has_bad_probability = 1;
      }
      __syncthreads();
      if (memory.has_bad_probability != 0) status = RowStatus::kBadParam;
    }
    if (status != RowStatus::kOk) {
      conclude(ResultOfStatus(status), 0);
      return;
    }
    auto left_of = [&](uint64_t w, int32_t id) {
      uint64_t left = Probability(reciprocal, w);
      for (int32_t n = 0; n < tries && left > 0; ++n) {
        const Rejected& one = memory.rejected[n];
        left = Probability(one.reciprocal, semantics::PositivePart(left, one.q(id)));
      }
      return left;
    };
    uint64_t residual = 0;
    kept.ForEach([&](int32_t id, uint64_t w) {
      const uint64_t left = left_of(w, id);
      if (id == q.draft) memory.p_draft = left;
      residual += semantics::PositivePart(left, q(id));
    });
    const Sums residuals = SumsOf(residual, memory.of_warp);
    const uint32_t u = semantics::AcceptanceOfTry(key, static_cast<uint32_t>(tries));
    if (semantics::AcceptsDraft(memory.p_draft, q(q.draft), u)) {
      result.id = q.draft;
      conclude(result, child);
      return;
    }
    if (residuals.all == 0) {  // the first that is kept
      result.id = kept.First(memory.first_of);
      conclude(result, 0);
      return;
    }
    const int32_t next = NextChild(of_request, node, child + 1);
    if (next == node.rows) {
      const uint64_t threshold =
          semantics::CdfThreshold(key, semantics::Stream::kRecovered, residuals.all);
      if (residuals.before <= threshold && threshold < residuals.before + residual) {
        memory.token = kept.IdAbove(threshold, residuals.before, [&](int32_t id, uint64_t w) {
          return semantics::PositivePart(left_of(w, id), q(id));
        });
      }
      __syncthreads();
      result.id = memory.token;
      conclude(result, 0);
      return;
    }
    __syncthreads();  // all threads have read p_draft
    if (Thread() == 0) memory.rejected[tries] = {q, ReciprocalOf(residuals.all)};
    ++tries;
    child = next;
  }
}

// A thread a request. A node's children come after it, so one walk over the rows finds the path.
__global__ void TreeVerdictKernel(const __grid_constant__ VerdictArgument argument) {
  const int32_t q = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (q >= argument.requests) return;
  const StepSpan span = argument.spans[q];
  const bool is_cdf = argument.store.records[span.slot].draw_method == DrawMethod::kCdf;
  const TreeRow* trees = argument.trees + span.first_row;
  const int32_t* drafts = argument.drafts + argument.rows[span.first_row].first_draft;
  int32_t* path = argument.path + span.first_row;
  int32_t length = 0;
  int32_t emitted = 0;
  int32_t at = 0;  // the row of the path that comes next; span.rows: none
  for (int32_t row = 0; row < span.rows; ++row) {
    const int32_t r = span.first_row + row;
    TokenResult result;
    if (row == at) {
      const int32_t accepted = argument.accepted == nullptr ? -1 : argument.accepted[r];
      result = SampledAt(argument, r, is_cdf, accepted);
      path[length++] = row;
      emitted += result.id >= 0 ? 1 : 0;
      at = accepted > 0 ? accepted : span.rows;
      if (accepted < 0 && result.id >= 0) {
        at = NextChild(trees, trees[row], row + 1);
        while (at < span.rows && drafts[at - 1] != result.id) {
          at = NextChild(trees, trees[row], at + 1);
        }
      }
    }
    argument.ids[r] = result.id;
    argument.statuses[r] = result.status;
    if (argument.cuts != nullptr) argument.cuts[r] = result.cut;
  }
  for (; length < span.rows; ++length) path[length] = -1;
  argument.emitted[q] = emitted;
}

// A block a request. Rows move down only, so that each is read before another takes its place; an
// element stays with its thread.
__global__ void CompactKernel(const __grid_constant__ CompactArgument argument) {
  const StepSpan span = argument.spans[blockIdx.x];
  const int32_t thread = Thread();
  const int32_t threads = static_cast<int32_t>(blockDim.x);
  const int32_t* path = argument.path + span.first_row;
  bool has_moved = false;
  for (int32_t row = 0; row < span.rows; ++row) {
    const int32_t from_row = path[row];
    if (from_row == row) continue;
    has_moved = has_moved || from_row >= 0;
    if (!has_moved) return;  // all rows stand where they belong, and the others are blank
    const bool is_blank = from_row < 0;
    const int64_t to = span.first_row + row;
    const int64_t from = is_blank ? to : span.first_row + from_row;
    if (thread == 0) {
      argument.ids[to] = is_blank ? -1 : argument.ids[from];
      argument.statuses[to] = is_blank ? RowStatus::kOk : argument.statuses[from];
      if (argument.cuts != nullptr) argument.cuts[to] = is_blank ? Cut{} : argument.cuts[from];
      if (argument.masses != nullptr) {
        argument.masses[to] = is_blank ? CutMass{} : argument.masses[from];
      }
      if (argument.logprobs != nullptr) {
        argument.logprobs[to] = is_blank ? semantics::QuietNan() : argument.logprobs[from];
        argument.ranks[to] = is_blank ? 0 : argument.ranks[from];
      }
    }
    for (int32_t n = thread; n < argument.width; n += threads) {
      const int64_t there = to * argument.width + n;
      const int64_t here = from * argument.width + n;
      argument.list_ids[there] = is_blank ? -1 : argument.list_ids[here];
      argument.list_values[there] = is_blank ? semantics::QuietNan() : argument.list_values[here];
    }
    for (int32_t n = thread; n < argument.kept_words; n += threads) {
      argument.kept[to * argument.kept_words + n] =
          is_blank ? 0 : argument.kept[from * argument.kept_words + n];
    }
  }
}

}  // namespace

void LaunchRejectTrees(const RejectArgument& argument, int64_t rows, void* stream) {
  if (rows == 0) return;
  RejectTreeKernel<<<static_cast<unsigned>(rows), kRejectThreads, 0,
                     static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchTreeVerdict(const VerdictArgument& argument, void* stream) {
  if (argument.requests == 0) return;
  constexpr unsigned kRequestsABlock = 32;
  const unsigned blocks =
      (static_cast<unsigned>(argument.requests) + kRequestsABlock - 1) / kRequestsABlock;
  TreeVerdictKernel<<<blocks, kRequestsABlock, 0, static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchCompact(const CompactArgument& argument, int64_t requests, void* stream) {
  if (requests == 0) return;
  constexpr unsigned kThreads = 128;
  CompactKernel<<<static_cast<unsigned>(requests), kThreads, 0,
                  static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
