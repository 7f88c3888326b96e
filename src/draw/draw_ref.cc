// Draws, log-probabilities and draft verification by the definition.
#include <array>
#include <variant>

#include "draw/draw_table.h"
#include "draw/mode_value.h"
#include "semantics/draw/draft.h"
#include "semantics/draw/logprob.h"
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

// The distribution that any draft was drawn from.
class SourceProbabilities {
 public:
  SourceProbabilities() = default;
  template <typename Q>
  explicit SourceProbabilities(const Q& q) : q_(q) {}

  uint64_t operator()(int64_t id) const {
    return std::visit([id](const auto& q) { return q(id); }, q_);
  }

 private:
  std::variant<semantics::CertainDraft, semantics::GivenProbabilities, semantics::CutProbabilities>
      q_{semantics::CertainDraft(-1)};
};

// Answers a status when a source is none.
RowStatus Open(const DraftToTry& one, int64_t vocab, SourceProbabilities& q) {
  const DraftSource& source = one.source;
  if (source.probabilities != nullptr) {
    for (int64_t id = 0; id < vocab; ++id) {
      const float given = source.probabilities[id];
      if (!(given >= 0.0f && given <= 1.0f)) return RowStatus::kBadParam;
    }
    q = SourceProbabilities(semantics::GivenProbabilities(source.probabilities));
  } else if (source.model != nullptr) {
    const Row row = RowOf(source.model->logits, 0);
    const semantics::RowScan scan = semantics::ScanRow(row);
    const SelectParams& params = source.model->params[0];
    const bool is_valid = semantics::AreValid(params, source.model->limits);
    const RowStatus status = semantics::Worse(
        source.cut->status,
        semantics::Worse(scan.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam));
    if (status != RowStatus::kOk) return status;
    q = SourceProbabilities(
        semantics::CutProbabilities(row, *source.cut, scan.max, semantics::ScalesOf(params).draw));
  } else {
    q = SourceProbabilities(semantics::CertainDraft(one.draft));
  }
  return RowStatus::kOk;
}

}  // namespace

Verdict VerifyByDefinition(const SelectInput& target, const Cut& cut,
                           std::span<const DraftToTry> drafts) {
  const FloatEnvironment environment;
  const Row row = RowOf(target.logits, 0);
  const int32_t count = static_cast<int32_t>(drafts.size());
  if (semantics::IsGreedy(target.params[0])) {
    const int32_t best = semantics::FirstKept(row, cut);
    for (int32_t n = 0; n < count; ++n) {
      const int32_t draft = drafts[static_cast<size_t>(n)].draft;
      if (semantics::AcceptsGreedyDraft(best, draft)) return {n, best, RowStatus::kOk};
    }
    return {-1, best, RowStatus::kOk};
  }
  using Left = semantics::LeftProbabilities<semantics::CutProbabilities, SourceProbabilities>;
  const NoiseKey& key = target.keys[0];
  const semantics::CutProbabilities p(row, cut, semantics::ScanRow(row).max,
                                      semantics::ScalesOf(target.params[0]).draw);
  std::array<Left::Rejected, semantics::kMostTries> rejected;
  for (int32_t n = 0; n < count; ++n) {
    const size_t before = static_cast<size_t>(n);
    const int32_t draft = drafts[before].draft;
    SourceProbabilities q;
    const RowStatus status = Open(drafts[before], row.size, q);
    if (status != RowStatus::kOk) return {-1, -1, status};
    const Left left(p, std::span(rejected).first(before));
    const uint32_t u = semantics::AcceptanceOfTry(key, static_cast<uint32_t>(n));
    if (semantics::AcceptsDraft(left(draft), q(draft), u)) return {n, draft, RowStatus::kOk};
    const uint64_t mass = semantics::PositiveMass(row.size, left, q);
    if (mass == 0) break;
    if (n + 1 == count) {
      return {-1, semantics::DrawRecovered(row.size, left, q, key), RowStatus::kOk};
    }
    rejected[before] = {q, mass};
  }
  return {-1, semantics::FirstKept(row, cut), RowStatus::kOk};
}

const DrawTable kDrawRef = {ExamineRef,        semantics::FirstKept, semantics::DrawToken,
                            DrawListedRef,     ListContendersRef,    LogprobsByDefinition,
                            VerifyByDefinition};

}  // namespace sluice
