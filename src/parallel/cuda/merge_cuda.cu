// Merges what all ranks have listed of a row, and decides by it, equally on every rank.
//
// The first listed tokens are the first of the whole row as long as no unlisted token comes before:
// up to the last one of a slice that has more on. Where all ties of a boundary are kept, those that
// tie with it are left out, because they may have others that are not listed.
#include <limits>

#include "draw/cuda/draw_kept.cuh"
#include "draw/cuda/draw_row.cuh"
#include "parallel/cuda/device_shards.h"
#include "parallel/drawn_rows.h"
#include "select/cuda/sorted_rules.cuh"
#include "semantics/row_status.h"
#include "semantics/validate.h"

namespace sluice::cuda {
namespace {

constexpr int kRoom = kMostDeviceCandidates + kMostDeviceCandidates / 2;  // WinnerByCdf's, too

struct MergeMemory {
  TeamMemory team;
  RowPrologue start;
  ScoreMemory scores;
  uint32_t size;
  uint64_t tokens[kRoom];
  uint64_t room[kRoom];
};

// The merged reports of all ranks.
struct MergedReport {
  RowStatus status;
  uint64_t first;    // the largest key; 0: everything is masked
  uint64_t horizon;  // keys from here on are listed; 0: all are
};

__device__ const DeviceRankReport& ReportOf(const ShardArgument& argument, int rank, int row) {
  const size_t bytes = ReportBytes(argument.candidates);
  const size_t index = static_cast<size_t>(rank) * static_cast<size_t>(argument.rows.rows) +
                       static_cast<size_t>(row);
  return *reinterpret_cast<const DeviceRankReport*>(argument.memory.all_reports + index * bytes);
}

__device__ const SelectParams& ParamsOf(const ShardArgument& argument, int row) {
  return argument.rows.params[argument.rows.has_params_per_row ? row : 0];
}
__device__ const NoiseKey& KeyOf(const ShardArgument& argument, int row) {
  return argument.rows.keys[argument.rows.has_keys_per_row ? row : 0];
}

__device__ uint64_t TokenOf(const ShardArgument& argument, int row, int place) {
  const DeviceRankReport& report = ReportOf(argument, place / argument.candidates, row);
  return reinterpret_cast<const uint64_t*>(&report + 1)[place % argument.candidates];
}

__device__ MergedReport MergeReports(const Team& block, const ShardArgument& argument, int row) {
  MergedReport merged{RowStatus::kOk, 0, 0};
  for (int rank = 0; rank < argument.ranks; ++rank) {
    const DeviceRankReport& report = ReportOf(argument, rank, row);
    merged.status = semantics::Worse(merged.status, static_cast<RowStatus>(report.status));
    if (report.is_all == 0) merged.horizon = max(merged.horizon, report.last);
  }
  const int place = block.thread();
  const bool is_listed = place < argument.candidates * argument.ranks;
  merged.first = block.MaxOfBlock(is_listed ? TokenOf(argument, row, place) : 0);
  if (merged.first == 0) merged.status = semantics::Worse(merged.status, RowStatus::kEmptySupport);
  return merged;
}

// The first tokens of the row, in no order; answers how many.
__device__ int ListFirst(const Team& block, const ShardArgument& argument, int row,
                         uint64_t horizon, MergeMemory& memory) {
  if (block.thread() == 0) memory.size = 0;
  // Tokens all differ, or the sorted list has places without a writer: of slices that overlap, or
  // where an exchange was given up, what is read there is to be a place all the same: garbage among
  // places in shared memory would end the process.
  if (block.thread() < kMostRanked) memory.scores.listed[block.thread()] = 0;
  memory.room[block.thread()] = 0;
  block.SyncBlock();
  const SelectParams& params = memory.start.params;
  const bool with_ties = params.profile.ties == Ties::kAll && !semantics::IsGreedy(params);
  if (block.thread() < argument.candidates * argument.ranks) {
    const uint64_t token = TokenOf(argument, row, block.thread());
    const bool is_first =
        with_ties && horizon != 0 ? token >> 32 > horizon >> 32 : token >= horizon;
    if (token != 0 && is_first) memory.tokens[atomicAdd(&memory.size, 1u)] = token;
  }
  block.SyncBlock();
  return static_cast<int>(memory.size);
}

using semantics::Filter;

struct ListDecision {
  bool is_decidable;  // by the list, if it turns out to be long enough
  bool is_whole;      // the mass of the row has a say
};

__device__ ListDecision DecisionOf(const SelectParams& params, int vocab, int size, bool is_all) {
  const semantics::RuleSet rules = semantics::RulesOf(params, vocab);
  if (Has(rules, Filter::kGreedy)) return {size > 0, false};
  if (!IsWithin(rules, kRulesOfTop) || size == 0) return {false, false};
  if (is_all) return {true, false};
  const bool has_top_p = Has(rules, Filter::kTopP);
  const bool is_counted = Has(rules, Filter::kTopK) && !IsJoint(rules, params.profile);
  if (is_counted && params.top_k <= size) return {true, false};
  if (is_counted && has_top_p) return {Has(rules, Filter::kMinP), true};
  return {has_top_p || Has(rules, Filter::kMinP) || Has(rules, Filter::kMinPLast), true};
}

// Finds what else the row needs; false for rows that need the whole row.
__device__ bool NeedOf(const SelectParams& params, const NoiseKey& key, DrawMethod method,
                       int vocab, DeviceNeed& need) {
  need = DeviceNeed::kNothing;
  const semantics::RuleSet rules = semantics::RulesOf(params, key, vocab);
  if (Has(rules, Filter::kGreedy) || !IsWithin(rules, kRulesOfTop)) return false;
  const bool has_top_k = Has(rules, Filter::kTopK);
  if (Has(rules, Filter::kTopP)) {
    if (Has(rules, Filter::kMinP) || (has_top_k && !IsJoint(rules, params.profile))) return false;
    need = DeviceNeed::kMass;
    return true;
  }
  if (has_top_k || Has(rules, Filter::kXtc) || method == DrawMethod::kCdf) return false;
  need = DeviceNeed::kSlice;
  return true;
}

constexpr int32_t kNotDecided = -2;

// The first thread has the result; its id is kNotDecided where the list says too little.
__device__ TokenResult SampleFromFirst(const Team& block, MergeMemory& memory, int size,
                                       const WholeMass* whole, DrawMethod method) {
  TokenResult result;
  result.id = kNotDecided;
  const NoiseKey& key = memory.start.key;
  const float scale = memory.start.scales.draw;
  const bool is_gumbel = method == DrawMethod::kGumbel;
  auto score = [&](uint64_t token, float max) {
    return ScoreKey(ValueOf(token), IdOf(token), max, scale, key);
  };
  const ListedTokens listed{memory.tokens, memory.room, size};
  const ScoredTop scored = SortAndScore(block, listed, memory.scores, is_gumbel, score);
  const FirstThreads first = block.FirstThreads(ThreadsToSort(size));
  if (first.thread() >= first.threads()) return result;
  const ListedTokens& sorted = scored.sorted;
  const KeptTop kept = SelectFromTop(first, sorted, memory.start, whole);
  if (!kept.IsCertain()) return result;
  const KeptToken mine{kept.Keeps(first.thread()), kept.x, kept.id};
  const int winner = WinnerOfKept(first, mine, method, kept.max, scale, key, sorted.room, [&] {
    return ScoreOfThread(scored, memory.scores, first.thread(), kept.max, score);
  });
  result.cut = CutOfTop(first, sorted, kept);
  result.id = IdOf(sorted.tokens[winner]);
  return result;
}

__device__ bool DrawsFromAll(const ShardArgument& argument, const SelectParams& params,
                             const NoiseKey& key) {
  return IsDrawn(params, key, argument.rows.limits, argument.method, argument.vocab);
}

// The draw has seen too little of the row for a Cut.
__device__ bool HasNoCut(const ShardArgument& argument, int row) {
  return !argument.needs_cuts &&
         DrawsFromAll(argument, ParamsOf(argument, row), KeyOf(argument, row));
}

__device__ TokenResult SampleFromSums(const ShardArgument& argument, int row) {
  BestToken best;
  TokenResult result;
  uint32_t lowest = 0;
  for (int rank = 0; rank < argument.ranks; ++rank) {
    const DeviceSums& sums = argument.memory.all_sums[int64_t{rank} * argument.rows.rows + row];
    if (sums.count == 0) continue;
    if (sums.score_and_value > best.score_and_value ||
        (sums.score_and_value == best.score_and_value && sums.id_complement > best.id_complement)) {
      best = {sums.score_and_value, sums.id_complement};
    }
    if (sums.lowest > lowest) result.cut.ties_kept = 0;
    lowest = max(lowest, sums.lowest);
    if (sums.lowest == lowest) result.cut.ties_kept += sums.ties;
    result.cut.count += sums.count;
  }
  result.cut.lower = semantics::ValueOfKey(~lowest);
  result.id = static_cast<int32_t>(~best.id_complement);
  if (HasNoCut(argument, row)) result.cut = Cut{};
  return result;
}

// From the tokens of all slices that may win; false where some rank has not sent all of its.
__device__ bool SampleFromDraws(const Team& block, const ShardArgument& argument, int row,
                                float max, const MergeMemory& memory, TokenResult& result) {
  uint32_t lowest = 0;
  for (int rank = 0; rank < argument.ranks; ++rank) {
    const auto& report = reinterpret_cast<const DeviceDrawReport&>(ReportOf(argument, rank, row));
    if (report.count == 0) continue;
    if (report.ties == DeviceDrawReport::kIncomplete) return false;
    if (report.lowest > lowest) result.cut.ties_kept = 0;
    lowest = ::max(lowest, report.lowest);
    if (report.lowest == lowest) result.cut.ties_kept += static_cast<int32_t>(report.ties);
    result.cut.count += static_cast<int32_t>(report.count);
  }
  result.cut.lower = semantics::ValueOfKey(~lowest);
  if (!argument.needs_cuts) result.cut = Cut{};
  const NoiseKey& key = memory.start.key;
  BestToken best;
  const bool is_listed = block.thread() < argument.candidates * argument.ranks;
  const uint64_t token = is_listed ? TokenOf(argument, row, block.thread()) : 0;
  if (token != 0) {
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), IdOf(token)));
    const float x = ValueOf(token);
    best.See(semantics::LogWeight(x, max, memory.start.scales.draw) + g, x, IdOf(token));
  }
  result.id = IdOfBest(block, best);
  return true;
}

// After the first exchange, or after the second one.
template <bool kHasSums>
__global__ void __launch_bounds__(kMostThreads)
    MergeKernel(const __grid_constant__ ShardArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  MergeMemory& memory = *reinterpret_cast<MergeMemory*>(shared);
  const Team block(memory.team);
  const int row = static_cast<int>(blockIdx.x);
  ShardProgress& progress = argument.memory.progress[row];
  const DeviceNeed needed = kHasSums ? progress.need : DeviceNeed::kNothing;
  if (kHasSums && needed == DeviceNeed::kNothing) return;
  auto set = [&](const TokenResult& result, ShardPath path) {
    argument.results[row] = result;
    argument.paths[row] = path;
  };
  if (needed == DeviceNeed::kSlice) {
    if (block.thread() == 0) set(SampleFromSums(argument, row), ShardPath::kSums);
    return;
  }
  if (block.thread() == 0) {
    memory.start.params = ParamsOf(argument, row);
    memory.start.key = KeyOf(argument, row);
    memory.start.scales = semantics::ScalesOf(memory.start.params);
  }
  MergedReport merged = MergeReports(block, argument, row);
  const SelectParams& params = memory.start.params;
  const NoiseKey& key = memory.start.key;
  block.SyncBlock();
  const bool is_valid =
      semantics::AreValid(params, argument.rows.limits) && semantics::IsValid(key);
  if (!is_valid) merged.status = RowStatus::kBadParam;
  const bool is_drawn = argument.kind != ShardRows::kListed && DrawsFromAll(argument, params, key);
  // No rank has sent anything of it: what lies in its message, a status too, is another call's.
  const bool is_unknown = argument.kind == ShardRows::kDrawn && !is_drawn;
  if (is_unknown && is_valid) {
    if (block.thread() == 0) {
      progress.need = DeviceNeed::kNothing;
      set(TokenResult{}, ShardPath::kGathered);
    }
    return;
  }
  TokenResult result;
  if (merged.status != RowStatus::kOk) {
    result.status = merged.status;
    result.cut.status = merged.status;
    if (block.thread() == 0) {
      progress.need = DeviceNeed::kNothing;
      set(result, ShardPath::kStatus);
    }
    return;
  }
  WholeMass whole{0, ~uint64_t{0}, false};
  if constexpr (kHasSums) {
    uint64_t mass = 0;
    for (int rank = 0; rank < argument.ranks; ++rank) {
      mass += argument.memory.all_sums[int64_t{rank} * argument.rows.rows + row].mass;
    }
    whole = {mass, mass, false};
  }
  if (!kHasSums && is_drawn &&
      SampleFromDraws(block, argument, row, ValueOf(merged.first), memory, result)) {
    if (block.thread() == 0) {
      progress.need = DeviceNeed::kNothing;
      set(result, ShardPath::kSums);
    }
    return;
  }
  result = TokenResult{};
  // Rows that are drawn have sent no first tokens but one.
  const int size = is_drawn ? 0 : ListFirst(block, argument, row, merged.horizon, memory);
  const ListDecision list = is_drawn
                                ? ListDecision{false, false}
                                : DecisionOf(params, argument.vocab, size, merged.horizon == 0);
  // A nucleus of the whole row needs its mass.
  const semantics::RuleSet rules = semantics::RulesOf(params);
  const bool is_early =
      !kHasSums && list.is_whole && Has(rules, Filter::kTopP) && !Has(rules, Filter::kMinP);
  result.id = kNotDecided;
  if (list.is_decidable && !is_early) {
    result =
        SampleFromFirst(block, memory, size, list.is_whole ? &whole : nullptr, argument.method);
  }
  if (block.thread() != 0) return;
  DeviceNeed need = DeviceNeed::kNothing;
  if (result.id != kNotDecided) {
    set(result, ShardPath::kCandidates);
  } else {
    if (!kHasSums) NeedOf(params, key, argument.method, argument.vocab, need);
    set(TokenResult{}, ShardPath::kGathered);
  }
  if (!kHasSums) {
    const float g = semantics::Gumbel(
        semantics::NoiseBits(key, semantics::GumbelStream(key), IdOf(merged.first)));
    progress = {ValueOf(merged.first), g, need};
  }
}

void Launch(const void* kernel, const ShardArgument& argument, void* stream) {
  ShardArgument copy = argument;
  const int threads = argument.candidates * argument.ranks <= 512 ? 512 : kMostThreads;
  LaunchOverRows({kernel, {1, threads}, sizeof(MergeMemory)}, argument.rows.rows, &copy, stream);
}

}  // namespace

void LaunchMerge(const ShardArgument& argument, void* stream) {
  Launch(reinterpret_cast<const void*>(MergeKernel<false>), argument, stream);
}

void LaunchFinish(const ShardArgument& argument, void* stream) {
  Launch(reinterpret_cast<const void*>(MergeKernel<true>), argument, stream);
}

}  // namespace sluice::cuda
