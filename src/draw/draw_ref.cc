// Draws, log-probabilities and draft verification by the definition.
#include "draw/draw_table.h"
#include "draw/mode_value.h"
#include "semantics/draft.h"
#include "semantics/logprob.h"
#include "semantics/validate.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::Row;
using semantics::Token;

Row RowOf(const LogitsView& logits, int64_t row) {
  return {logits.Row(row), logits.dtype, logits.vocab};
}

Token* TokensOf(const Execution& execution, const LogitsView& logits, int worker) {
  const size_t bytes = static_cast<size_t>(logits.vocab) * sizeof(Token);
  return reinterpret_cast<Token*>(WorkerWorkspace(execution, bytes, worker));
}

semantics::StatusAndMax ExamineRef(const Row& row) {
  const semantics::RowScan scan = semantics::ScanRow(row);
  return {scan.status, scan.max};
}

int32_t DrawListedRef(const TokenList& tokens, float max, float scale, const NoiseKey& key) {
  semantics::Winner best{0.0f, {0.0f, -1}};
  for (int64_t i = 0; i < tokens.size; ++i) {
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), tokens.ids[i]));
    const semantics::Winner candidate{semantics::LogWeight(tokens.x[i], max, scale) + g,
                                      {tokens.x[i], tokens.ids[i]}};
    if (semantics::Beats(candidate, best)) best = candidate;
  }
  return best.token.id;
}

int64_t ListContendersRef(std::span<const float> x, float max, float scale, const NoiseKey& key,
                          float best, int32_t* ids) {
  int64_t listed = 0;
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    const auto id = static_cast<int32_t>(i);
    const float g = semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), id));
    const float t = semantics::LogWeight(x[static_cast<size_t>(i)], max, scale);
    if (t + g >= best) ids[listed++] = id;
  }
  return listed;
}

semantics::Normalizer NormalizerOfMode(const LogprobInput& input, const Row& row, const Cut& cut,
                                       const SelectParams& params) {
  if (input.mode == LogprobMode::kRawLogprobs) return semantics::RawNormalizer(row);
  if (input.mode != LogprobMode::kProcessedLogprobs) return {};
  const semantics::RowScan scan = semantics::ScanRow(row);
  return scan.status == RowStatus::kOk ? semantics::ProcessedNormalizer(row, cut, scan.max, params)
                                       : semantics::NormalizerOf(0.0f, 1.0f, 0);
}

void LogprobsOfRow(const LogprobInput& input, int64_t r, TokenResult& result, const RowList& list,
                   Token* workspace) {
  const Row row = RowOf(input.logits, r);
  const SelectParams& params = PerRow(input.params, r);
  const ModeValue mode_value{input.mode, params, NormalizerOfMode(input, row, result.cut, params)};
  const bool is_processed = IsProcessed(input.mode);
  const float sampled = row[result.id];

  // Tokens that the mode gives a value: the kept ones, or all that are neither -inf nor NaN.
  int64_t listed = 0;
  result.rank = 0;
  semantics::CutWalk walk(semantics::ProcessedCut(result.cut, params));
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    const bool is_dropped = is_processed && !walk.Keeps(x);
    if (!is_dropped && x >= sampled) ++result.rank;
    if (!is_dropped && x > -semantics::Infinity())
      workspace[listed++] = {x, static_cast<int32_t>(i)};
  }
  result.logprob = mode_value(sampled);
  if (list.width == 0) return;

  semantics::SortByOrder(workspace, listed);
  list.ids[0] = result.id;
  list.values[0] = result.logprob;
  for (int32_t n = 1; n < list.width; ++n) {
    const bool is_listed = n <= listed;
    list.ids[n] = is_listed ? workspace[n - 1].id : -1;
    list.values[n] = is_listed ? mode_value(workspace[n - 1].x) : -semantics::Infinity();
  }
}

}  // namespace

void LogprobsByDefinition(const LogprobInput& input, std::span<TokenResult> results,
                          const LogprobLists& lists, const Execution& execution) {
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) {
    TokenResult& result = results[static_cast<size_t>(r)];
    if (result.status != RowStatus::kOk || result.id < 0) {
      ReportNothing(result, ListOf(lists, r));
    } else {
      LogprobsOfRow(input, r, result, ListOf(lists, r), TokensOf(execution, input.logits, worker));
    }
  });
}

namespace {

template <typename Q>
Verdict VerifyAgainst(const SelectInput& target, const Cut& cut, int32_t draft, const Q& q) {
  const Row row = RowOf(target.logits, 0);
  const float max = semantics::ScanRow(row).max;
  const float scale = semantics::ScalesOf(target.params[0]).draw;
  const semantics::CutProbabilities p(row, cut, max, scale);
  const NoiseKey& key = target.keys[0];
  if (semantics::AcceptsDraft(row.size, p, q, draft, key)) return {true, draft, RowStatus::kOk};
  const int32_t recovered = semantics::DrawRecovered(row.size, p, q, key);
  return {false, recovered >= 0 ? recovered : semantics::FirstKept(row, cut), RowStatus::kOk};
}

}  // namespace

Verdict VerifyByDefinition(const SelectInput& target, const Cut& cut, int32_t draft,
                           const DraftSource& source) {
  const FloatEnvironment environment;
  if (semantics::IsGreedy(target.params[0])) {
    const int32_t best = semantics::FirstKept(RowOf(target.logits, 0), cut);
    return {semantics::AcceptsGreedyDraft(best, draft), best, RowStatus::kOk};
  }
  if (source.probabilities != nullptr) {
    for (int64_t id = 0; id < target.logits.vocab; ++id) {
      const float q = source.probabilities[id];
      if (!(q >= 0.0f && q <= 1.0f)) return {false, -1, RowStatus::kBadParam};
    }
    return VerifyAgainst(target, cut, draft, semantics::GivenProbabilities(source.probabilities));
  }
  if (source.model != nullptr) {
    const Row row = RowOf(source.model->logits, 0);
    const semantics::RowScan scan = semantics::ScanRow(row);
    const SelectParams& params = source.model->params[0];
    const bool is_valid = semantics::AreValid(params, source.model->limits);
    const RowStatus status = semantics::Worse(
        source.cut->status,
        semantics::Worse(scan.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam));
    if (status != RowStatus::kOk) return {false, -1, status};
    return VerifyAgainst(
        target, cut, draft,
        semantics::CutProbabilities(row, *source.cut, scan.max, semantics::ScalesOf(params).draw));
  }
  return VerifyAgainst(target, cut, draft, semantics::CertainDraft(draft));
}

const DrawTable kDrawRef = {ExamineRef,        semantics::FirstKept, semantics::DrawToken,
                            DrawListedRef,     ListContendersRef,    LogprobsByDefinition,
                            VerifyByDefinition};

}  // namespace sluice
