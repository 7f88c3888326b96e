// Two exchanges: what must be known of the whole row before a slice can be summed (its largest
// value, the value of the token, how many ties of the Cut's boundaries lie on the ranks before),
// then the sums.
#include "parallel/shard_logprobs.h"

#include <algorithm>

#include "draw/mode_value.h"
#include "parallel/row_request.h"
#include "semantics/draw/logprob.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

struct SliceReport {
  uint64_t fingerprint;
  uint32_t status;
  float max;
  float sampled;       // on the rank that has the token
  int32_t upper_ties;  // tokens of the slice that equal a boundary of the Cut
  int32_t lower_ties;
  uint32_t zero;  // where padding would be
};
static_assert(sizeof(SliceReport) == 32);

struct SliceMass {
  uint64_t mass;
  int64_t rank;  // tokens with at least the value of the sampled one
};

bool HasToken(const TokenResult& result) {
  return result.status == RowStatus::kOk && result.id >= 0;
}

void FillReport(const ShardRank& rank, const semantics::Row& part, const Cut& cut, int32_t id,
                SliceReport& report) {
  const semantics::RowScan scan = semantics::ScanRow(part);
  report.status = static_cast<uint32_t>(scan.status);
  report.max = scan.max;
  for (int64_t i = 0; i < part.size; ++i) {
    report.upper_ties += part[i] == cut.upper ? 1 : 0;
    report.lower_ties += part[i] == cut.lower ? 1 : 0;
  }
  if (rank.Owns(id)) report.sampled = part[id - rank.slice().first_id];
}

WholeRow Merge(const ShardRank& rank, int64_t row, const Cut& cut, int32_t id) {
  WholeRow whole;
  int64_t upper_ties = 0;
  int64_t lower_ties = 0;
  for (int32_t r = 0; r < rank.ranks(); ++r) {
    const SliceReport& report = rank.PartOf<SliceReport>(r, row);
    const auto status = static_cast<RowStatus>(report.status);
    if (status != RowStatus::kEmptySupport) {
      whole.status = whole.status == RowStatus::kEmptySupport
                         ? status
                         : semantics::Worse(whole.status, status);
    }
    whole.max = std::max(whole.max, report.max);
    if (r == rank.rank()) whole.own_cut = ShardCut(cut, upper_ties, lower_ties);
    upper_ties += report.upper_ties;
    lower_ties += report.lower_ties;
    const ShardSlice& slice = rank.slice(r);
    if (id >= slice.first_id && id < slice.first_id + slice.tokens) whole.sampled = report.sampled;
  }
  return whole;
}

SliceMass MassOf(const semantics::Row& part, const WholeRow& whole, bool is_processed) {
  const float scale = semantics::TemperatureScale(whole.temperature);
  SliceMass sums{0, 0};
  semantics::CutWalk walk(whole.own_cut);
  for (int64_t i = 0; i < part.size; ++i) {
    const float x = part[i];
    if (is_processed && !walk.Keeps(x)) continue;
    sums.rank += x >= whole.sampled ? 1 : 0;
    if (whole.status == RowStatus::kOk) sums.mass += semantics::Weight(x, whole.max, scale);
  }
  return sums;
}

}  // namespace

void MergeLogprobs(ShardRank& rank, const LogprobInput& own, std::span<TokenResult> results,
                   const Execution& execution, std::vector<WholeRow>& wholes) {
  const int64_t rows = own.logits.rows;
  rank.CheckOwn("logits", own.logits);
  CheckPerRow("params", own.params.size(), rows);
  CheckInRange("mode", static_cast<int64_t>(own.mode), 0, 3);
  CheckSize("results", results.size(), rows);
  CheckWorkers(execution);
  for (const TokenResult& result : results) {
    if (HasToken(result)) CheckInRange("results.id", result.id, 0, rank.vocab() - 1);
  }
  const bool is_processed = IsProcessed(own.mode);
  auto cut_of = [&](int64_t r) {
    return semantics::ProcessedCut(results[static_cast<size_t>(r)].cut, PerRow(own.params, r));
  };

  auto request_of = [&](int64_t r) {
    const TokenResult& result = results[static_cast<size_t>(r)];
    return LogprobRequest{PerRow(own.params, r), own.mode, result.id, result.status,
                          is_processed ? result.cut : Cut{}};
  };

  rank.Begin(ShardTask::kLogprobs);
  SliceReport* const reports = rank.Parts<SliceReport>(rows);
  ForEachRow(execution.parallel, rows, [&](int64_t r, int) {
    const TokenResult& result = results[static_cast<size_t>(r)];
    reports[r].fingerprint = Fingerprint(request_of(r));
    if (HasToken(result)) {
      FillReport(rank, rank.Row(own.logits, r), cut_of(r), result.id, reports[r]);
    }
  });
  rank.Exchange();
  RequireSameRequests(
      rank, rows,
      [&](int32_t of, int64_t r) { return rank.PartOf<SliceReport>(of, r).fingerprint; },
      request_of);
  wholes.resize(static_cast<size_t>(rows));
  ForEachRow({}, rows, [&](int64_t r, int) {
    const TokenResult& result = results[static_cast<size_t>(r)];
    if (!HasToken(result)) return;
    WholeRow& whole = wholes[static_cast<size_t>(r)];
    whole = Merge(rank, r, cut_of(r), result.id);
    const SelectParams& params = PerRow(own.params, r);
    if (is_processed && !semantics::IsGreedy(params)) {
      whole.temperature = semantics::EffectiveTemperature(params.temperature);
    }
  });

  SliceMass* const masses = rank.Parts<SliceMass>(rows);
  ForEachRow(execution.parallel, rows, [&](int64_t r, int) {
    if (!HasToken(results[static_cast<size_t>(r)])) return;
    masses[r] = MassOf(rank.Row(own.logits, r), wholes[static_cast<size_t>(r)], is_processed);
  });
  rank.Exchange();
  ForEachRow({}, rows, [&](int64_t r, int) {
    TokenResult& result = results[static_cast<size_t>(r)];
    if (!HasToken(result)) return ReportNothing(result, {});
    const WholeRow& whole = wholes[static_cast<size_t>(r)];
    SliceMass sum{0, 0};
    for (int32_t from = 0; from < rank.ranks(); ++from) {
      sum.mass += rank.PartOf<SliceMass>(from, r).mass;
      sum.rank += rank.PartOf<SliceMass>(from, r).rank;
    }
    const ModeValue value{own.mode, PerRow(own.params, r),
                          semantics::NormalizerOf(whole.status == RowStatus::kOk ? whole.max : 0.0f,
                                                  whole.temperature, sum.mass)};
    result.rank = static_cast<int32_t>(sum.rank);
    result.logprob = value(whole.sampled);
  });
}

}  // namespace sluice
