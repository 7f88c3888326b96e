// Writes what a rank sends of its slice: its first tokens; then its mass, or its best draw.
#include "cuda/cuda_check.h"
#include "cuda/row_by_definition.cuh"
#include "draw/cuda/draw_row.cuh"
#include "draw/cuda/likely_tokens.cuh"
#include "parallel/cuda/device_shards.h"
#include "semantics/filters/min_p.h"
#include "semantics/row_status.h"
#include "semantics/temperature.h"

namespace sluice::cuda {
namespace {

constexpr int kReportThreads = 128;

__global__ void __launch_bounds__(kReportThreads)
    ReportKernel(const __grid_constant__ ShardArgument argument) {
  __shared__ TeamMemory shared;
  const Team block(shared);
  const int row = static_cast<int>(blockIdx.x);
  if (argument.kind == ShardRows::kAny && argument.memory.lengths[row] == 0) return;
  const int candidates = argument.candidates;
  std::byte* const message = argument.memory.own_reports + row * ReportBytes(candidates);
  uint64_t* const tokens = reinterpret_cast<uint64_t*>(message + sizeof(DeviceRankReport));
  uint64_t last = 0;  // complement of the smallest key
  bool is_all = false, has_infinity = false;
  for (int i = block.thread(); i < candidates; i += block.threads()) {
    const int64_t at = int64_t{row} * candidates + i;
    const int32_t index = argument.memory.indices[at];
    const float x = argument.memory.values[at];
    const bool is_token = index >= 0 && x != -INFINITY;
    is_all |= !is_token;
    has_infinity |= is_token && x == INFINITY;
    const uint64_t key = is_token ? KeyOfToken(x, argument.first_id + index) : 0;
    tokens[i] = key;
    if (is_token) last = max(last, ~key);
  }
  last = block.MaxOfBlock(last);
  const bool all = block.CountOfBlock(is_all) > 0;
  const bool infinite = block.CountOfBlock(has_infinity) > 0;
  if (block.thread() != 0) return;
  RowStatus status = argument.memory.statuses[row];
  // A slice without support says nothing of the row.
  if (status == RowStatus::kEmptySupport) status = RowStatus::kOk;
  if (infinite) status = semantics::Worse(status, RowStatus::kPosInfInput);
  *reinterpret_cast<DeviceRankReport*>(message) = {~last, static_cast<uint32_t>(status),
                                                   all ? 1u : 0u};
}

// The 16-bit fields of noise of tokens that are visited in ascending order.
class FieldsOfNoise {
 public:
  __device__ FieldsOfNoise(const NoiseKey& key, semantics::Stream stream)
      : key_(key), stream_(stream) {}

  __device__ uint32_t Of(int32_t id) {
    if (id >> 3 != index_) {
      index_ = id >> 3;
      block_ = semantics::NoiseBlock(key_, stream_, static_cast<uint32_t>(index_), 0);
    }
    const uint32_t low = (id & 2) ? block_.word[1] : block_.word[0];
    const uint32_t high = (id & 2) ? block_.word[3] : block_.word[2];
    return (((id & 4) ? high : low) >> (16 * (id & 1))) & 0xffffu;
  }

 private:
  const NoiseKey& key_;
  semantics::Stream stream_;
  semantics::Block block_;
  int32_t index_ = -1;
};

// A score is at most t - log2(h / (2^16 ln 2)) (cuda/weight_histogram_pass.cuh), here with a
// hundredth for the approximate logarithm and every rounding.
__device__ inline float MostOfScore(float t, uint32_t field) {
  return field == 0 ? INFINITY : t - __log2f(static_cast<float>(field)) + 15.4812f;
}

struct SliceMemory {
  TeamMemory team;
  SelectParams params;
  NoiseKey key;
};

template <typename Slice>
__device__ void SumSlice(const Team& team, const Slice& slice, const SliceMemory& memory,
                         const ShardArgument& argument, int row) {
  const ShardProgress progress = argument.memory.progress[row];
  const semantics::Scales scales = semantics::ScalesOf(memory.params);
  const float max = progress.max;
  DeviceSums sums{};
  uint64_t mass = 0;
  if (progress.need == DeviceNeed::kMass) {
    ForEachToken(slice, [&](float x, int) { mass += semantics::Weight(x, max, scales.filter); });
    sums.mass = team.Sum(mass);
  } else {
    const semantics::RuleSet rules = semantics::RulesOf(memory.params);
    const bool has_min_p =
        Has(rules, semantics::Filter::kMinP) || Has(rules, semantics::Filter::kMinPLast);
    const float least = has_min_p
                            ? semantics::MinPThreshold(memory.params.min_p, max, scales.filter)
                            : semantics::kLowestValue;
    const semantics::Stream stream = semantics::GumbelStream(memory.key);
    FieldsOfNoise fields(memory.key, stream);
    BestToken best;
    // The best score of the warp, or of a certainly kept token: then fewer tokens are scored.
    uint32_t best_score = semantics::OrderKey(progress.floor);
    uint32_t count = 0, lowest = 0, ties = 0;
    ForEachToken(slice, [&](float x, int local) {
      const bool is_kept = x >= least;
      const uint32_t complement = is_kept ? ~semantics::OrderKey(x) : 0;
      count += is_kept ? 1 : 0;
      if (complement > lowest) {
        lowest = complement;
        ties = 0;
      }
      ties += is_kept && complement == lowest ? 1 : 0;
      const int32_t id = argument.first_id + local;
      const float t = semantics::LogWeight(x, max, scales.draw);
      const uint32_t field = fields.Of(id);
      const bool may_win = is_kept && MostOfScore(t, field) >= semantics::ValueOfKey(best_score);
      if (!__any_sync(~0u, may_win)) return;
      if (may_win) {
        const uint64_t bits = uint64_t{field} << 32 | semantics::NoiseLow(memory.key, stream, id);
        const float score = t + semantics::Gumbel(bits);
        best.See(score, x, id);
        best_score = umax(best_score, semantics::OrderKey(score));
      }
      best_score = __reduce_max_sync(~0u, best_score);
    });
    sums.count = static_cast<int32_t>(team.Sum(count));
    sums.lowest = static_cast<uint32_t>(team.Max(lowest));
    sums.ties = static_cast<int32_t>(team.Sum(lowest == sums.lowest ? ties : 0));
    sums.score_and_value = team.Max(best.score_and_value);
    sums.id_complement = static_cast<uint32_t>(
        team.Max(best.score_and_value == sums.score_and_value ? best.id_complement : 0));
  }
  if (team.IsFirstThread()) argument.memory.own_sums[row] = sums;
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SumsKernel(const __grid_constant__ ShardArgument argument) {
  __shared__ SliceMemory memory;
  const Team team(memory.team);
  const int row = TeamIndex(team);
  if (argument.memory.progress[row].need == DeviceNeed::kNothing) return;
  if (team.thread() == 0) {
    memory.params = argument.rows.params[argument.rows.has_params_per_row ? row : 0];
    memory.key = argument.rows.keys[argument.rows.has_keys_per_row ? row : 0];
  }
  team.Sync();
  const VectorSlice<kDType, false> slice(team, argument.rows, row);
  SumSlice(team, slice, memory, argument, row);
}

// One block.
__global__ void __launch_bounds__(kMostThreads)
    OpenKernel(const __grid_constant__ ShardArgument argument) {
  __shared__ int32_t count;
  if (threadIdx.x == 0) count = 0;
  __syncthreads();
  for (int row = static_cast<int>(threadIdx.x); row < argument.rows.rows; row += kMostThreads) {
    const bool is_open = argument.memory.progress[row].need != DeviceNeed::kNothing ||
                         argument.paths[row] == ShardPath::kGathered;
    if (is_open) argument.memory.open_rows[atomicAdd(&count, 1)] = row;
  }
  __syncthreads();
  if (threadIdx.x == 0) *argument.memory.open_count = count;
}

constexpr int kTakingThreads = 128;

__global__ void TakeKernel(const TokenResult* whole, const ShardPath* paths, TokenResult* results,
                           int64_t rows) {
  const int64_t row = int64_t{blockIdx.x} * kTakingThreads + threadIdx.x;
  if (row < rows && paths[row] == ShardPath::kGathered) results[row] = whole[row];
}

}  // namespace

void LaunchReports(const ShardArgument& argument, void* stream) {
  ShardArgument copy = argument;
  LaunchOverRows({reinterpret_cast<const void*>(ReportKernel), {1, kReportThreads}, 0},
                 argument.rows.rows, &copy, stream);
}

void LaunchOpen(const ShardArgument& argument, void* stream) {
  OpenKernel<<<1, kMostThreads, 0, static_cast<cudaStream_t>(stream)>>>(argument);
  RequireCuda(cudaGetLastError(), "kernel");
}

void LaunchSums(const ShardArgument& argument, DType dtype, void* stream) {
  ShardArgument copy = argument;
  const void* kernel =
      ForDType(dtype, SumsKernel<DType::kF32>, SumsKernel<DType::kBf16>, SumsKernel<DType::kF16>);
  LaunchOverRows({kernel, ShapeForRows(argument.rows.rows), 0}, argument.rows.rows, &copy, stream);
}

void LaunchTakeGathered(const TokenResult* whole, const ShardPath* paths, TokenResult* results,
                        int64_t rows, void* stream) {
  const auto blocks = static_cast<unsigned>((rows + kTakingThreads - 1) / kTakingThreads);
  TakeKernel<<<blocks, kTakingThreads, 0, static_cast<cudaStream_t>(stream)>>>(whole, paths,
                                                                               results, rows);
  RequireCuda(cudaGetLastError(), "kernel");
}

}  // namespace sluice::cuda
