// Draws, log-probabilities and draft verification by the definition.
#include "draw/draw_table.h"
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

// The values that a mode reports, of one row.
class ModeValues {
 public:
  ModeValues(const LogprobInput& input, int64_t r, const Cut& cut)
      : row_(RowOf(input.logits, r)), mode_(input.mode), params_(PerRow(input.params, r)) {
    if (IsProcessed()) cut_ = semantics::ProcessedCut(cut, params_);
    if (mode_ == LogprobMode::kRawLogprobs) {
      normalizer_ = semantics::RawNormalizer(row_);
    } else if (mode_ == LogprobMode::kProcessedLogprobs) {
      const semantics::RowScan scan = semantics::ScanRow(row_);
      normalizer_ = scan.status == RowStatus::kOk
                        ? semantics::ProcessedNormalizer(row_, cut, scan.max, params_)
                        : semantics::NormalizerOf(0.0f, 1.0f, 0);
    }
  }

  bool IsProcessed() const {
    return mode_ == LogprobMode::kProcessedLogprobs || mode_ == LogprobMode::kProcessedLogits;
  }
  const Cut& cut() const { return cut_; }

  float operator()(float x) const {
    switch (mode_) {
      case LogprobMode::kRawLogits:
        return x;
      case LogprobMode::kProcessedLogits:
        return semantics::ProcessedLogit(x, params_);
      case LogprobMode::kRawLogprobs:
      case LogprobMode::kProcessedLogprobs:
        break;
    }
    return normalizer_.Logprob(x);
  }

 private:
  Row row_;
  LogprobMode mode_;
  SelectParams params_;
  Cut cut_;
  semantics::Normalizer normalizer_ = {};
};

void LogprobsOfRow(const LogprobInput& input, int64_t r, TokenResult& result, int32_t* ids,
                   float* values, int32_t width, Token* workspace) {
  const Row row = RowOf(input.logits, r);
  const ModeValues mode_value(input, r, result.cut);
  const float sampled = row[result.id];

  // Tokens that the mode gives a value: the kept ones, or all that are neither -inf nor NaN.
  int64_t listed = 0;
  result.rank = 0;
  semantics::CutWalk walk(mode_value.cut());
  for (int64_t i = 0; i < row.size; ++i) {
    const float x = row[i];
    const bool is_dropped = mode_value.IsProcessed() && !walk.Keeps(x);
    if (!is_dropped && x >= sampled) ++result.rank;
    if (!is_dropped && x > -semantics::Infinity())
      workspace[listed++] = {x, static_cast<int32_t>(i)};
  }
  result.logprob = mode_value(sampled);
  if (width == 0) return;

  semantics::SortByOrder(workspace, listed);
  ids[0] = result.id;
  values[0] = result.logprob;
  for (int32_t n = 1; n < width; ++n) {
    const bool is_listed = n <= listed;
    ids[n] = is_listed ? workspace[n - 1].id : -1;
    values[n] = is_listed ? mode_value(workspace[n - 1].x) : -semantics::Infinity();
  }
}

}  // namespace

void LogprobsByDefinition(const LogprobInput& input, std::span<TokenResult> results,
                          const LogprobLists& lists, const Execution& execution) {
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) {
    TokenResult& result = results[static_cast<size_t>(r)];
    int32_t* ids = lists.ids.data() + r * lists.width;
    float* values = lists.values.data() + r * lists.width;
    if (result.status != RowStatus::kOk || result.id < 0) {
      result.logprob = semantics::QuietNan();
      result.rank = 0;
      for (int32_t n = 0; n < lists.width; ++n) {
        ids[n] = -1;
        values[n] = semantics::QuietNan();
      }
      return;
    }
    LogprobsOfRow(input, r, result, ids, values, lists.width,
                  TokensOf(execution, input.logits, worker));
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

const DrawTable kDrawRef = {semantics::DrawToken, DrawListedRef, LogprobsByDefinition,
                            VerifyByDefinition};

}  // namespace sluice
