// Merging vocabulary shards: parallel/sharded_row.h has the messages of each of them.
#include "sluice/shards.hpp"

#include "parallel/select_shards.h"
#include "semantics/draw/draw.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

void CheckShards(const ShardInput& input, size_t results, bool draws, const Execution& execution) {
  if (input.shards.empty()) ThrowInvalid("shards.size()", "0", "at least 1");
  int64_t next_id = 0;
  const int64_t rows = input.shards[0].logits.rows;
  for (const Shard& shard : input.shards) {
    CheckLogits("shards.logits", shard.logits);
    CheckInRange("shards.logits.rows", shard.logits.rows, rows, rows);
    CheckInRange("shards.first_id", shard.first_id, next_id, next_id);
    next_id += shard.logits.vocab;
  }
  CheckInRange("the vocabulary of all shards", next_id, 1, kMaxVocab);
  CheckPerRow("params", input.params.size(), rows);
  const bool needs_keys = draws || AnyXtc(input.params);
  if (needs_keys || !input.keys.empty()) CheckPerRow("keys", input.keys.size(), rows);
  CheckSize("results", results, rows);
  CheckExecution(execution, ShardsWorkspaceBytes(input, execution));
}

NoiseKey KeyOf(const ShardInput& input, int64_t row) {
  return input.keys.empty() ? NoiseKey{} : PerRow(input.keys, row);
}

struct SelectedShards {
  Cut cut;
  float max;
};

SelectedShards SelectRow(const ShardedRow& row, const SelectParams& params, const NoiseKey& key,
                         const Limits& limits) {
  const semantics::RowScan scan = row.Scan();
  const bool is_valid = semantics::AreValid(params, limits) && semantics::IsValid(key);
  const RowStatus status =
      semantics::Worse(scan.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam);
  if (status != RowStatus::kOk) return {semantics::CutOfStatus(status), scan.max};
  ShardSelection selection(row, scan.max, scan.support, params);
  return {selection.Select(key), scan.max};
}

int64_t CountEqual(const semantics::Row& part, float value) {
  int64_t count = 0;
  for (int64_t i = 0; i < part.size; ++i) count += part[i] == value ? 1 : 0;
  return count;
}

// visit(shard index, its slice, its part of the cut), in ascending order of ids.
template <typename Visit>
void ForEachShard(const ShardedRow& row, const Cut& cut, Visit visit) {
  int64_t upper_ties = 0;
  int64_t lower_ties = 0;
  for (size_t s = 0; s < row.shards(); ++s) {
    const semantics::Row part = row.Part(s);
    visit(s, part, ShardCut(cut, upper_ties, lower_ties));
    upper_ties += CountEqual(part, cut.upper);
    lower_ties += CountEqual(part, cut.lower);
  }
}

int32_t DrawGumbel(const ShardedRow& row, const Cut& cut, float max, float scale,
                   const NoiseKey& key) {
  semantics::Winner best{0.0f, {0.0f, -1}};
  ForEachShard(row, cut, [&](size_t s, const semantics::Row& part, const Cut& own) {
    const semantics::Winner winner =
        semantics::DrawGumbel(part, own, max, scale, key, row.first_id(s));
    if (semantics::Beats(winner, best)) best = winner;
  });
  return best.token.id;
}

int32_t FirstKept(const ShardedRow& row, const Cut& cut) {
  semantics::Token first{0.0f, -1};
  ForEachShard(row, cut, [&](size_t s, const semantics::Row& part, const Cut& own) {
    const int32_t local = semantics::FirstKept(part, own);
    if (local < 0) return;
    const semantics::Token token{part[local], row.first_id(s) + local};
    if (first.id < 0 || semantics::Before(token, first)) first = token;
  });
  return first.id;
}

int32_t DrawCdf(const ShardedRow& row, const Cut& cut, float max, float scale,
                const NoiseKey& key) {
  uint64_t mass = 0;
  ForEachShard(row, cut, [&](size_t, const semantics::Row& part, const Cut& own) {
    mass += semantics::KeptMass(part, own, max, scale);
  });
  if (mass == 0) return FirstKept(row, cut);
  const uint64_t threshold = semantics::CdfThreshold(key, semantics::CdfStream(key), mass);
  uint64_t running = 0;
  int32_t drawn = -1;
  ForEachShard(row, cut, [&](size_t s, const semantics::Row& part, const Cut& own) {
    semantics::CutWalk walk(own);
    for (int64_t i = 0; drawn < 0 && i < part.size; ++i) {
      const float x = part[i];
      if (!walk.Keeps(x)) continue;
      running += semantics::Weight(x, max, scale);
      if (running > threshold) drawn = row.first_id(s) + static_cast<int32_t>(i);
    }
  });
  return drawn;
}

}  // namespace

Cut ShardCut(const Cut& cut, int64_t ties_before_upper, int64_t ties_before_lower) {
  auto rest = [](int32_t ties, int64_t before) {
    return static_cast<int32_t>(ties > before ? ties - before : 0);
  };
  CheckInRange("ties_before_upper", ties_before_upper, 0, kMaxVocab);
  CheckInRange("ties_before_lower", ties_before_lower, 0, kMaxVocab);
  Cut own = cut;
  own.ties_dropped = rest(cut.ties_dropped, ties_before_upper);
  own.ties_kept = rest(cut.ties_kept, ties_before_lower);
  return own;
}

size_t ShardsWorkspaceBytes(const ShardInput&, const Execution& execution) {
  CheckWorkers(execution);
  return 0;
}

void SelectShards(const ShardInput& input, std::span<Cut> cuts, const Execution& execution) {
  CheckShards(input, cuts.size(), false, execution);
  ForEachRow(execution.parallel, input.shards[0].logits.rows, [&](int64_t r, int) {
    cuts[static_cast<size_t>(r)] = SelectRow(ShardedRow(input.shards, r), PerRow(input.params, r),
                                             KeyOf(input, r), input.limits)
                                       .cut;
  });
}

void SampleShards(const ShardInput& input, DrawMethod method, std::span<TokenResult> results,
                  const Execution& execution) {
  CheckShards(input, results.size(), true, execution);
  CheckMethod(method);
  ForEachRow(execution.parallel, input.shards[0].logits.rows, [&](int64_t r, int) {
    const ShardedRow row(input.shards, r);
    const NoiseKey key = KeyOf(input, r);
    const SelectParams& params = PerRow(input.params, r);
    const SelectedShards selected = SelectRow(row, params, key, input.limits);
    TokenResult& result = results[static_cast<size_t>(r)];
    result = TokenResult{};
    result.status = selected.cut.status;
    result.cut = selected.cut;
    if (result.status != RowStatus::kOk) return;
    const float scale = semantics::ScalesOf(params).draw;
    result.id = method == DrawMethod::kCdf
                    ? DrawCdf(row, selected.cut, selected.max, scale, key)
                    : DrawGumbel(row, selected.cut, selected.max, scale, key);
  });
}

}  // namespace sluice
