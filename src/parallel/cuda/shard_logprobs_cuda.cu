// Two reads of a slice: what must be known of the whole row before a slice can be summed (its
// largest value, the value of the token, how many ties of the Cut's boundaries lie on the ranks
// before), then the sums. Ties have one value, so their number is enough.
#include "cuda/cuda_check.h"
#include "cuda/row_by_definition.cuh"
#include "cuda/row_status.cuh"
#include "draw/cuda/likely_tokens.cuh"
#include "draw/mode_value.h"
#include "parallel/cuda/device_logprobs.h"

namespace sluice::cuda {
namespace {

__device__ bool HasToken(const ShardLogprobArgument& argument, const TokenResult& result) {
  return result.status == RowStatus::kOk && result.id >= 0 && result.id < argument.vocab;
}

// The state of a row on all ranks after the first exchange, and this one's part of its Cut.
struct WholeRow {
  semantics::StatusAndMax row;
  float sampled;
  int32_t dropped;  // ties at the Cut's upper boundary on this rank that are not kept
  int32_t kept_upper;
  int32_t kept_lower;
};

__device__ const LogprobReport& ReportOf(const ShardLogprobArgument& argument, int rank, int row) {
  return argument.memory.all_reports[int64_t{rank} * argument.rows.rows + row];
}

__device__ WholeRow Merged(const ShardLogprobArgument& argument, int row, const Cut& cut) {
  WholeRow whole{{RowStatus::kEmptySupport, -INFINITY}, 0.0f, 0, 0, 0};
  int64_t upper_before = 0, lower_before = 0;
  for (int rank = 0; rank < argument.ranks; ++rank) {
    const LogprobReport& report = ReportOf(argument, rank, row);
    const auto status = static_cast<RowStatus>(report.status);
    if (status != RowStatus::kEmptySupport) {
      const bool is_first = whole.row.status == RowStatus::kEmptySupport;
      whole.row.status = is_first ? status : semantics::Worse(whole.row.status, status);
    }
    // The first of equal ones counts: zeros have signs.
    if (report.max > whole.row.max) whole.row.max = report.max;
    if (report.has_token != 0) whole.sampled = report.sampled;
    if (rank == argument.rank && cut.lower <= cut.upper) {
      auto here = [](int32_t ties, int64_t before, int32_t most) {
        const int64_t rest = max(int64_t{ties} - before, int64_t{0});
        return static_cast<int32_t>(min(rest, int64_t{most}));
      };
      whole.dropped = here(cut.ties_dropped, upper_before, report.upper_ties);
      const int32_t kept = here(cut.ties_kept, lower_before, report.lower_ties);
      const bool is_one = cut.lower == cut.upper;
      whole.kept_upper = is_one ? max(kept - whole.dropped, 0) : report.upper_ties - whole.dropped;
      whole.kept_lower = is_one ? 0 : kept;
    }
    upper_before += report.upper_ties;
    lower_before += report.lower_ties;
  }
  return whole;
}

// visit(x, id) for the tokens of this thread and no others: masked ones count here, so the masked
// elements after a warp's stretch must not.
template <DType kDType, typename Visit>
__device__ void ForEachOwn(const VectorSlice<kDType>& slice, Visit visit) {
  FirstVectors loaded;
  slice.LoadFirst(loaded);
  slice.Stream(loaded, [&](const Eight<kDType>& eight) {
    if (!slice.Has(eight.first)) return;
#pragma unroll
    for (int e = 0; e < Eight<kDType>::kTokens; ++e) {
      const int id = Eight<kDType>::Id(eight.first, e);
      if (id < slice.vocab()) visit(eight.x[e], id);
    }
  });
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    LogprobReportKernel(const __grid_constant__ ShardLogprobArgument argument) {
  __shared__ TeamMemory memory;
  const Team team(memory);
  const int row = TeamIndex(team);
  const TokenResult result = argument.results[row];
  if (!HasToken(argument, result)) return;
  const VectorSlice<kDType> slice(team, argument.rows, row);
  float largest = -INFINITY;
  bool has_nan = false;
  uint32_t at_upper = 0, at_lower = 0, zero = 0;
  ForEachOwn(slice, [&](float x, int id) {
    largest = fmaxf(largest, x);
    has_nan |= semantics::IsNan(x);
    at_upper += x == result.cut.upper ? 1 : 0;
    at_lower += x == result.cut.lower ? 1 : 0;
    if (x == 0.0f) zero = max(zero, ~static_cast<uint32_t>(id));
  });
  const semantics::StatusAndMax scan = StatusAndMaxOf(team, largest, has_nan);
  const uint64_t ties = team.Sum(static_cast<uint64_t>(at_upper) << 32 | at_lower);
  const auto first_zero = static_cast<int>(~static_cast<uint32_t>(team.Max(zero)));
  if (!team.IsFirstThread()) return;
  const int local = result.id - argument.first_id;
  const bool has_token = local >= 0 && local < argument.rows.vocab;
  LogprobReport report;
  report.max = scan.max == 0.0f ? slice.ValueOf(first_zero) : scan.max;
  if (scan.status == RowStatus::kEmptySupport) report.max = -INFINITY;
  report.sampled = has_token ? slice.ValueOf(local) : 0.0f;
  report.status = static_cast<uint32_t>(scan.status);
  report.upper_ties = static_cast<int32_t>(ties >> 32);
  report.lower_ties = static_cast<int32_t>(ties & 0xffffffffu);
  report.has_token = has_token ? 1 : 0;
  argument.memory.own_reports[row] = report;
}

struct SumsMemory {
  TeamMemory team;
  LikelyMemory likely;
};

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    LogprobSumsKernel(const __grid_constant__ ShardLogprobArgument argument) {
  __shared__ SumsMemory memory;
  const Team team(memory.team);
  const int row = TeamIndex(team);
  const TokenResult result = argument.results[row];
  if (!HasToken(argument, result)) return;
  const SelectParams& params = argument.rows.params[argument.rows.has_params_per_row ? row : 0];
  const bool is_processed = IsProcessed(argument.mode);
  const bool is_greedy = semantics::IsGreedy(params);
  const bool is_whole = !is_processed || is_greedy;
  const Cut cut = result.cut;
  const WholeRow whole = Merged(argument, row, cut);
  const bool is_ok = whole.row.status == RowStatus::kOk;
  const semantics::Scales scales = semantics::ScalesOf(params);
  const float temperature = is_whole ? 1.0f : semantics::EffectiveTemperature(params.temperature);
  const float scale = semantics::TemperatureScale(temperature);
  const float max = whole.row.max;
  const bool needs_mass = NeedsMass(argument.mode) && is_ok;
  const bool needs_kept = argument.kept_masses != nullptr && is_ok;

  const VectorSlice<kDType> slice(team, argument.rows, row);
  LongMassSum mass, kept_mass;
  uint32_t rank = 0, inside = 0;
  ForEachOwn(slice, [&](float x, int) {
    const bool is_inside = x < cut.upper && x > cut.lower;
    const bool counts = is_whole ? !is_processed || x > -INFINITY : is_inside;
    rank += counts && x >= whole.sampled ? 1 : 0;
    inside += is_inside ? 1 : 0;
    if (needs_mass) mass.Add(MassSum::Of(is_whole || is_inside ? x : -INFINITY, max, scale));
    if (needs_kept) kept_mass.Add(MassSum::Of(is_inside ? x : -INFINITY, max, scales.filter));
  });
  LogprobSums sums;
  sums.mass = team.Sum(mass.Total());
  sums.kept_mass = needs_kept ? team.Sum(kept_mass.Total()) : 0;
  sums.rank = static_cast<int64_t>(team.Sum(rank));
  const auto all_inside = static_cast<int32_t>(team.Sum(inside));
  const auto upper = static_cast<uint64_t>(whole.kept_upper);
  const auto lower = static_cast<uint64_t>(whole.kept_lower);
  // A boundary that no token has may be infinite, and has no weight.
  auto mass_of_ties = [&](float by) {
    uint64_t of_ties = 0;
    if (upper > 0) of_ties += upper * semantics::Weight(cut.upper, max, by);
    if (lower > 0) of_ties += lower * semantics::Weight(cut.lower, max, by);
    return of_ties;
  };
  if (needs_kept) sums.kept_mass += mass_of_ties(scales.filter);
  if (!is_whole) {
    if (needs_mass) sums.mass += mass_of_ties(scale);
    if (cut.upper >= whole.sampled) sums.rank += whole.kept_upper;
    if (cut.lower >= whole.sampled) sums.rank += whole.kept_lower;
  }
  std::byte* const message = argument.memory.own_sums + row * LogprobSumsBytes(argument.listed);
  if (team.IsFirstThread()) *reinterpret_cast<LogprobSums*>(message) = sums;
  if (argument.listed == 0) return;
  auto* const list = reinterpret_cast<semantics::Token*>(message + sizeof(LogprobSums));
  if (team.rank() == 0) {
    for (int i = team.thread(); i < argument.listed; i += team.threads()) list[i] = {0.0f, -1};
  }
  team.Sync();
  const LikelyRange range{
      is_whole ? INFINITY : cut.upper, is_whole ? semantics::kLowestValue : cut.lower,
      is_whole ? 0 : whole.dropped,
      is_whole ? INT32_MAX : all_inside + whole.kept_upper + whole.kept_lower, argument.listed};
  ListLikely(team, slice, argument.rows.vocab, range, memory.likely,
             [&](int n, int32_t id) { list[n] = {slice.ValueOf(id), argument.first_id + id}; });
}

constexpr int kFinishThreads = 256;

__device__ const LogprobSums& SumsOf(const ShardLogprobArgument& argument, int rank, int row) {
  const int64_t index = int64_t{rank} * argument.rows.rows + row;
  return *reinterpret_cast<const LogprobSums*>(argument.memory.all_sums +
                                               index * LogprobSumsBytes(argument.listed));
}
__device__ semantics::Token ListedToken(const ShardLogprobArgument& argument, int row, int place) {
  const LogprobSums& sums = SumsOf(argument, place / argument.listed, row);
  return reinterpret_cast<const semantics::Token*>(&sums + 1)[place % argument.listed];
}

__global__ void __launch_bounds__(kFinishThreads)
    LogprobFinishKernel(const __grid_constant__ ShardLogprobArgument argument) {
  const int row = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const TokenResult result = argument.results[row];
  const bool has_token = HasToken(argument, result);
  const bool has_list = argument.list_ids != nullptr;
  const int width = argument.listed + 1;
  int32_t* const ids = has_list ? argument.list_ids + int64_t{row} * width : nullptr;
  float* const values = has_list ? argument.list_values + int64_t{row} * width : nullptr;
  float logprob = semantics::QuietNan();
  int64_t place_of_token = 0;
  uint64_t kept_mass = 0;
  const SelectParams& params = argument.rows.params[argument.rows.has_params_per_row ? row : 0];
  ModeValue value{argument.mode, params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
  if (has_token) {
    const WholeRow whole = Merged(argument, row, result.cut);
    uint64_t mass = 0;
    for (int rank = 0; rank < argument.ranks; ++rank) {
      const LogprobSums& sums = SumsOf(argument, rank, row);
      mass += sums.mass;
      kept_mass += sums.kept_mass;
      place_of_token += sums.rank;
    }
    if (NeedsMass(argument.mode) && whole.row.status == RowStatus::kOk) {
      const bool is_whole = !IsProcessed(argument.mode) || semantics::IsGreedy(params);
      const float temperature =
          is_whole ? 1.0f : semantics::EffectiveTemperature(params.temperature);
      value.normalizer = semantics::NormalizerOf(whole.row.max, temperature, mass);
    }
    logprob = value(whole.sampled);
    if (semantics::IsNan(logprob)) logprob = semantics::QuietNan();
  }
  if (has_list) {
    for (int n = thread; n < width; n += kFinishThreads) {
      ids[n] = has_token && n == 0 ? result.id : -1;
      values[n] = !has_token ? semantics::QuietNan() : n == 0 ? logprob : -INFINITY;
    }
  }
  __syncthreads();  // every thread has read the result
  if (thread == 0) {
    argument.results[row].logprob = logprob;
    argument.results[row].rank = static_cast<int32_t>(place_of_token);
    if (argument.kept_masses != nullptr) argument.kept_masses[row] = kept_mass;
  }
  if (!has_token || !has_list) return;
  // A token's place is the number of those before it.
  const int listed = argument.listed * argument.ranks;
  for (int i = thread; i < listed; i += kFinishThreads) {
    const semantics::Token token = ListedToken(argument, row, i);
    if (token.id < 0) continue;
    int place = 1;
    for (int j = 0; j < listed && place < width; ++j) {
      const semantics::Token other = ListedToken(argument, row, j);
      place += other.id >= 0 && semantics::Before(other, token) ? 1 : 0;
    }
    if (place >= width) continue;
    const float x = value(token.x);
    ids[place] = token.id;
    values[place] = semantics::IsNan(x) ? semantics::QuietNan() : x;
  }
}

}  // namespace

void LaunchLogprobReports(const ShardLogprobArgument& argument, DType dtype, void* stream) {
  ShardLogprobArgument copy = argument;
  const void* kernel =
      ForDType(dtype, LogprobReportKernel<DType::kF32>, LogprobReportKernel<DType::kBf16>,
               LogprobReportKernel<DType::kF16>);
  LaunchOverRows({kernel, ShapeForRows(argument.rows.rows), 0}, argument.rows.rows, &copy, stream);
}

void LaunchLogprobSums(const ShardLogprobArgument& argument, DType dtype, void* stream) {
  ShardLogprobArgument copy = argument;
  const void* kernel = ForDType(dtype, LogprobSumsKernel<DType::kF32>,
                                LogprobSumsKernel<DType::kBf16>, LogprobSumsKernel<DType::kF16>);
  LaunchOverRows({kernel, ShapeForRows(argument.rows.rows), 0}, argument.rows.rows, &copy, stream);
}

void LaunchLogprobFinish(const ShardLogprobArgument& argument, void* stream) {
  ShardLogprobArgument copy = argument;
  LaunchOverRows({reinterpret_cast<const void*>(LogprobFinishKernel), {1, kFinishThreads}, 0},
                 argument.rows.rows, &copy, stream);
}

}  // namespace sluice::cuda
