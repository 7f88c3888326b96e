// Logprobs: rank, status and maximum in one read of the row, masses in another. Ties at a boundary
// have one value, so their number is enough, and no ids are looked for.
#include "cuda/long_mass_sum.cuh"
#include "cuda/row_by_definition.cuh"
#include "cuda/row_status.cuh"
#include "draw/cuda/likely_tokens.cuh"
#include "draw/cuda/row_report.cuh"

namespace sluice::cuda {
namespace {

// In shared memory.
struct LogprobsMemory {
  TeamMemory team;
  LikelyMemory likely;
};

// The entries of a row, by its team.
template <typename Slice>
__device__ void PutList(const Team& team, const Slice& slice, int vocab, const RowReport& report,
                        const TokenResult& result, bool is_whole, float logprob,
                        const ModeValue& value, LikelyMemory& memory) {
  if (team.rank() == 0) report.BeginList(team, result.id, logprob);
  if (report.listed() <= 1) return;
  const LikelyRange range{is_whole ? INFINITY : result.cut.upper,
                          is_whole ? semantics::kLowestValue : result.cut.lower,
                          is_whole ? 0 : result.cut.ties_dropped,
                          is_whole ? INT32_MAX : result.cut.count, report.listed() - 1};
  ListLikely(team, slice, vocab, range, memory,
             [&](int n, int32_t id) { report.PutListed(1 + n, id, value(slice.ValueOf(id))); });
}

// The tokens between the boundaries of a Cut, without the ties at them.
struct Inside {
  float upper;
  float lower;

  __device__ bool operator()(float x) const { return x < upper && x > lower; }
};

// How many of the ties at the boundaries are kept.
struct KeptTies {
  uint64_t upper;
  uint64_t lower;
};

__device__ inline KeptTies KeptTiesOf(const Cut& cut, uint64_t at_upper, uint64_t at_lower) {
  if (!(cut.lower <= cut.upper)) return {0, 0};
  auto clamp = [](int64_t ties, uint64_t most) {
    return min(static_cast<uint64_t>(max(ties, int64_t{0})), most);
  };
  const uint64_t dropped = clamp(cut.ties_dropped, at_upper);
  const uint64_t kept = clamp(cut.ties_kept, at_lower);
  if (cut.lower == cut.upper) return {kept > dropped ? kept - dropped : 0, 0};
  return {at_upper - dropped, kept};
}

struct Census {
  semantics::StatusAndMax row;
  uint64_t rank;  // among what is looked at; ties at the boundaries are not in it
  uint64_t at_upper;
  uint64_t at_lower;
};

// for_each(visit) calls visit(x) for the values that are this thread's; is_looked_at(x): whether a
// value counts for the rank.
template <typename ForEach, typename IsLookedAt>
__device__ Census CountRow(const Team& team, ForEach for_each, const Cut& cut, bool needs_ties,
                           float sampled, IsLookedAt is_looked_at) {
  const float least =
      needs_ties ? fminf(fminf(cut.lower, cut.upper), sampled) : sampled;  // of what matters here
  float largest = -INFINITY;
  bool has_nan = false;
  uint32_t rank = 0, at_upper = 0, at_lower = 0;
  for_each([&](float x) {
    largest = fmaxf(largest, x);
    has_nan |= semantics::IsNan(x);
    if (!(x >= least)) return;
    if (x >= sampled && is_looked_at(x)) ++rank;
    at_upper += x == cut.upper ? 1 : 0;
    at_lower += x == cut.lower ? 1 : 0;
  });
  Census census{};
  census.row = StatusAndMaxOf(team, largest, has_nan);
  census.rank = team.Sum(rank);
  if (needs_ties) {
    const uint64_t ties = team.Sum(static_cast<uint64_t>(at_upper) << 32 | at_lower);
    census.at_upper = ties >> 32;
    census.at_lower = ties & 0xffffffffu;
  }
  return census;
}

// The maximum with the sign that the definition gives a zero: that of the first of equal ones.
template <typename Slice>
__device__ float SignedMax(const Team& team, const Slice& slice, float max) {
  if (max != 0.0f) return max;
  uint32_t complement = 0;  // of the first id
  slice.ForEach([&](float x, int id) {
    if (x == 0.0f) complement = ::max(complement, ~static_cast<uint32_t>(id));
  });
  return slice.ValueOf(static_cast<int>(~static_cast<uint32_t>(team.Max(complement))));
}

// The mass of the whole row, or of what is kept; the row has no status.
template <typename Slice>
__device__ uint64_t MassOfKept(const Team& team, const Slice& slice, const Cut& cut, bool is_whole,
                               const Census& census, float scale) {
  const float max = census.row.max;
  const Inside inside{cut.upper, cut.lower};
  LongMassSum sum;
  ForEachValue(slice, [&](float x) {
    if (is_whole || inside(x)) sum.Add(MassSum::Of(x, max, scale));
  });
  uint64_t mass = team.Sum(sum.Total());
  if (is_whole) return mass;
  const KeptTies ties = KeptTiesOf(cut, census.at_upper, census.at_lower);
  if (ties.upper > 0) mass += ties.upper * semantics::Weight(cut.upper, max, scale);
  if (ties.lower > 0) mass += ties.lower * semantics::Weight(cut.lower, max, scale);
  return mass;
}

template <DType kDType, bool kPatched>
__global__ void __launch_bounds__(kMostThreads)
    LogprobsKernel(const __grid_constant__ LogprobsArgument argument) {
  __shared__ LogprobsMemory memory;
  const Team team(memory.team);
  const TeamRow<kDType, kPatched> row(team, argument.rows, TeamIndex(team));
  const RowReport report(argument, row.index);
  if (!report.is_requested()) {
    if (team.rank() == 0) report.PutNothing(team);
    return;
  }
  const TokenResult result = report.Drawn();
  const bool has_token = result.id >= 0;
  float logprob = semantics::QuietNan();
  int32_t rank = 0;
  uint64_t kept_mass = 0;
  if (has_token) {
    const auto slice = [&] {
      if constexpr (kPatched) {
        return row.slice;
      } else {
        return VectorSlice<kDType>(team, argument.rows, TeamIndex(team));
      }
    }();
    const SelectParams& params = row.params;
    const bool is_processed = IsProcessed(argument.mode);
    const bool is_whole = !is_processed || semantics::IsGreedy(params);
    const float sampled = row.slice.ValueOf(result.id);
    const Inside inside{result.cut.upper, result.cut.lower};
    auto is_looked_at = [&](float x) {
      return is_whole ? !is_processed || x > -INFINITY : inside(x);
    };
    const bool needs_ties = !is_whole || argument.kept_masses != nullptr;
    auto count = [&](auto for_each) {
      return CountRow(team, for_each, result.cut, needs_ties, sampled, is_looked_at);
    };
    // Vectors are filled up with masked values, which changes nothing unless those are counted.
    const bool counts_masked =
        sampled == -INFINITY || result.cut.upper == -INFINITY || result.cut.lower == -INFINITY;
    const Census census =
        counts_masked
            ? count([&](auto visit) { row.slice.ForEach([&](float x, int) { visit(x); }); })
            : count([&](auto visit) { ForEachValue(slice, visit); });
    const bool is_ok = census.row.status == RowStatus::kOk;
    const semantics::Scales scales = semantics::ScalesOf(params);

    ModeValue value{argument.mode, params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
    uint64_t mass = 0;
    float temperature = 1.0f;
    if (NeedsMass(argument.mode) && is_ok) {
      if (!is_whole) temperature = semantics::EffectiveTemperature(params.temperature);
      mass = MassOfKept(team, slice, result.cut, is_whole, census,
                        semantics::TemperatureScale(temperature));
      value.normalizer =
          semantics::NormalizerOf(SignedMax(team, row.slice, census.row.max), temperature, mass);
    }
    if (argument.kept_masses != nullptr && is_ok) {
      const bool is_known = NeedsMass(argument.mode) && !is_whole && scales.filter == scales.draw;
      kept_mass =
          is_known ? mass : MassOfKept(team, slice, result.cut, false, census, scales.filter);
    }
    logprob = value(sampled);
    rank = static_cast<int32_t>(census.rank);
    if (!is_whole) {
      const KeptTies ties = KeptTiesOf(result.cut, census.at_upper, census.at_lower);
      if (result.cut.upper >= sampled) rank += static_cast<int32_t>(ties.upper);
      if (result.cut.lower >= sampled) rank += static_cast<int32_t>(ties.lower);
    }
    if (report.listed() > 0) {
      PutList(team, slice, argument.rows.vocab, report, result, is_whole, logprob, value,
              memory.likely);
    }
  } else if (team.rank() == 0) {
    report.BeginList(team, -1, logprob);
  }
  team.Sync();  // every thread has read the result
  if (!team.IsFirstThread()) return;
  report.Put(logprob, rank);
  if (argument.kept_masses != nullptr) argument.kept_masses[row.index] = kept_mass;
}

}  // namespace

void LaunchLogprobs(const LogprobsArgument& argument, DType dtype, void* stream,
                    bool starts_early) {
  LogprobsArgument passed = argument;
  const int64_t rows = argument.rows.rows;
  RowKernel kernel{nullptr, ShapeForRows(rows), 0};
  if (argument.rows.patches != nullptr) {
    kernel.function =
        ForDType(dtype, LogprobsKernel<DType::kF32, true>, LogprobsKernel<DType::kBf16, true>,
                 LogprobsKernel<DType::kF16, true>);
  } else if (IsProcessed(argument.mode) || argument.kept_masses != nullptr) {
    kernel.function =
        ForDType(dtype, LogprobsKernel<DType::kF32, false>, LogprobsKernel<DType::kBf16, false>,
                 LogprobsKernel<DType::kF16, false>);
  } else {
    kernel.function = RawLogprobsKernelFor(dtype);
    kernel.starts_early = starts_early;
  }
  LaunchOverRows(kernel, rows, &passed, stream);
}

void Logprobs(const LogitsView& logits, const RowParams& params, LogprobMode mode,
              DeviceArray<TokenResult> results, DeviceArray<uint64_t> kept_masses, void* stream,
              const DeviceLogprobLists& lists) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckInRange("mode", static_cast<int64_t>(mode), 0, 3);
  CheckOneARow("results", results, logits.rows);
  CheckOneARow("kept_masses", kept_masses, logits.rows, true);
  CheckInRange("lists.width", lists.width, 0, 1 + 128);
  if (lists.width > 0) {
    CheckOneARow("lists.ids", lists.ids, logits.rows * lists.width);
    CheckOneARow("lists.values", lists.values, logits.rows * lists.width);
  }
  LaunchLogprobs({ArgumentOf(logits, params),
                  mode,
                  results.data,
                  kept_masses.size == 0 ? nullptr : kept_masses.data,
                  {lists.ids.data, lists.values.data, lists.width},
                  {}},
                 logits.dtype, stream);
}

}  // namespace sluice::cuda
