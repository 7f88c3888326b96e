// Draws from a certified head: the tokens that the rules of selection look at, the whole softmax by
// a certified Gumbel-max, top-p by bounds of the mass, and the ordinary Sample on the dense head's
// logits for the rest.
#include <algorithm>

#include "head/certified_call.h"
#include "head/deciding_tokens.h"
#include "pipeline/certified_gumbel.h"
#include "pipeline/certified_nucleus.h"
#include "pipeline/sample_row.h"
#include "semantics/draw.h"
#include "semantics/select.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::Token;

// Where the answers go: whole results, or the ids and statuses alone.
struct SampleOutput {
  std::span<TokenResult> results = {};
  std::span<int32_t> ids = {};
  std::span<RowStatus> statuses = {};
};

class SampleQuestion : public RowQuestion {
 public:
  SampleQuestion(std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                 const Limits& limits, DrawMethod method, const SampleOutput& output, int64_t vocab,
                 Backend backend)
      : params_(params),
        keys_(keys),
        limits_(limits),
        method_(method),
        output_(output),
        vocab_(vocab),
        selection_(SelectTableFor(backend)),
        draws_(DrawTableFor(backend)) {}

  Need Prepare(int64_t row) override {
    const SelectParams& params = PerRow(params_, row);
    if (!semantics::AreValid(params, limits_) || !semantics::IsValid(PerRow(keys_, row))) {
      Fail(row, RowStatus::kBadParam);
      return Need::kNothing;
    }
    return DecidesOf(row) == Decides::kMass && !IsNucleus(params) ? Need::kDense : Need::kPlanes;
  }

  DenseReason Certify(int64_t row, RowCertificate& certificate, std::byte* workspace) override {
    const SelectParams& params = PerRow(params_, row);
    const Decides decides = DecidesOf(row);
    const bool is_first = decides == Decides::kFirst;
    const int64_t k = is_first && !semantics::IsGreedy(params) ? params.top_k : 1;
    TopTokens top;
    if (!certificate.Top(k, top)) return DenseReason::kSurvivors;
    if (decides == Decides::kSoftmax) {
      return DrawFromSoftmax(row, certificate, top.tokens[0], workspace);
    }
    if (decides == Decides::kMass) {
      return DrawFromNucleus(row, certificate, top.tokens[0], workspace);
    }
    if (decides == Decides::kLikely) {
      const float scale = semantics::ScalesOf(params).filter;
      const float least = semantics::MinPThreshold(params.min_p, top.tokens[0].x, scale);
      if (!certificate.From(least, top)) return DenseReason::kSurvivors;
    }
    FromTokens(row, top, workspace);
    return DenseReason::kNone;
  }

  // The rules and the draw, on the tokens that decide.
  void FromTokens(int64_t row, const TopTokens& top, std::byte* workspace) override {
    const semantics::SortedRow sorted{top.tokens.data(), std::ssize(top.tokens)};
    FromKept(row, top, semantics::SelectInterval(sorted, PerRow(params_, row), PerRow(keys_, row)),
             workspace);
  }

  // The draw, from some of the row's first tokens.
  void FromKept(int64_t row, const TopTokens& top, const semantics::Interval& kept,
                std::byte* workspace) {
    const SelectParams& params = PerRow(params_, row);
    const NoiseKey& key = PerRow(keys_, row);
    const semantics::SortedRow sorted{top.tokens.data(), std::ssize(top.tokens)};
    TokenResult result;
    result.cut = semantics::CutOfInterval(sorted, kept);
    const auto tokens = top.tokens.subspan(static_cast<size_t>(kept.begin),
                                           static_cast<size_t>(kept.end - kept.begin));
    if (semantics::IsGreedy(params)) {
      result.id = tokens[0].id;
    } else if (method_ == DrawMethod::kCdf) {
      result.id = DrawCdf(row, tokens, sorted.Max(), workspace);
    } else {
      auto* const x = reinterpret_cast<float*>(workspace);
      auto* const ids = reinterpret_cast<int32_t*>(workspace) + vocab_;
      for (size_t i = 0; i < tokens.size(); ++i) x[i] = tokens[i].x, ids[i] = tokens[i].id;
      result.id = draws_.draw_listed({x, ids, std::ssize(tokens)}, sorted.Max(),
                                     semantics::ScalesOf(params).draw, key);
    }
    Set(row, result);
  }

  void FromLogits(int64_t row, std::span<const float> logits, const RowMemory&,
                  std::byte* workspace) override {
    TokenResult result;
    SampleRow({{logits.data(), DType::kF32, std::ssize(logits)},
               PerRow(params_, row),
               PerRow(keys_, row),
               limits_,
               false},
              method_, selection_, draws_, workspace, result);
    Set(row, result);
  }

  void Fail(int64_t row, RowStatus status) override {
    TokenResult result;
    result.status = status;
    result.cut = semantics::CutOfStatus(status);
    Set(row, result);
  }

 private:
  bool WantsCuts() const { return !output_.results.empty(); }
  void Set(int64_t row, const TokenResult& result) const {
    const auto at = static_cast<size_t>(row);
    if (!output_.results.empty()) output_.results[at] = result;
    if (!output_.ids.empty()) output_.ids[at] = result.id;
    if (!output_.statuses.empty()) output_.statuses[at] = result.status;
  }
  Decides DecidesOf(int64_t row) const {
    return DecidingTokens(PerRow(params_, row), PerRow(keys_, row), method_, vocab_);
  }

  // In the order of ids, as the definition sums.
  int32_t DrawCdf(int64_t row, std::span<const Token> kept, float max, std::byte* workspace) const {
    const float scale = semantics::ScalesOf(PerRow(params_, row)).draw;
    auto* const by_id = reinterpret_cast<Token*>(workspace);
    std::copy(kept.begin(), kept.end(), by_id);
    std::sort(by_id, by_id + kept.size(),
              [](const Token& a, const Token& b) { return a.id < b.id; });
    uint64_t mass = 0;
    for (const Token& token : kept) mass += semantics::Weight(token.x, max, scale);
    if (mass == 0) return kept[0].id;
    const NoiseKey& key = PerRow(keys_, row);
    const uint64_t threshold = semantics::CdfThreshold(key, semantics::CdfStream(key), mass);
    uint64_t running = 0;
    for (size_t i = 0; i < kept.size(); ++i) {
      running += semantics::Weight(by_id[i].x, max, scale);
      if (running > threshold) return by_id[i].id;
    }
    return -1;  // not reached: the threshold is below the mass
  }

  // first: the first token of the row.
  DenseReason DrawFromSoftmax(int64_t row, RowCertificate& certificate, const Token& first,
                              std::byte* workspace) {
    RowCertificate::Bottom bottom;
    if (WantsCuts() && !certificate.Last(bottom)) return DenseReason::kSurvivors;
    const NoiseKey& key = PerRow(keys_, row);
    const float scale = semantics::ScalesOf(PerRow(params_, row)).draw;
    CertifiedGumbel gumbel(certificate, draws_, key, first, scale, vocab_, workspace);
    Token winner;
    if (!gumbel.Draw(nullptr, winner)) return DenseReason::kSurvivors;
    TokenResult result;
    result.id = winner.id;
    if (WantsCuts()) {
      result.cut.count = bottom.support;
      result.cut.lower = bottom.value + 0.0f;
      result.cut.ties_kept = bottom.ties;
    }
    Set(row, result);
    return DenseReason::kNone;
  }

  DenseReason DrawFromNucleus(int64_t row, RowCertificate& certificate, const Token& first,
                              std::byte* workspace) {
    const SelectParams& params = PerRow(params_, row);
    const NoiseKey& key = PerRow(keys_, row);
    CertifiedNucleus nucleus(certificate, params, key, first, vocab_);
    if (!WantsCuts() && CertifiedNucleus::IsLazy(params, method_, key)) {
      CertifiedGumbel gumbel(certificate, draws_, key, first, semantics::ScalesOf(params).draw,
                             vocab_, workspace);
      TokenResult result;
      const DenseReason reason = nucleus.Draw(gumbel, result.id);
      if (reason == DenseReason::kNone) Set(row, result);
      return reason;
    }
    TopTokens known;
    semantics::Interval kept;
    if (!nucleus.Keep(known, kept)) return DenseReason::kMass;
    FromKept(row, known, kept, workspace);
    return DenseReason::kNone;
  }

  std::span<const SelectParams> params_;
  std::span<const NoiseKey> keys_;
  const Limits& limits_;
  DrawMethod method_;
  SampleOutput output_;
  int64_t vocab_;
  const SelectTable& selection_;
  const DrawTable& draws_;
};

// A worker's: a selection on dense logits, or a float and an id a token.
size_t QuestionBytes(int64_t vocab, Backend backend) {
  return std::max(SelectTableFor(backend).workspace_bytes(vocab),
                  static_cast<size_t>(vocab) * sizeof(Token));
}

struct SampleCall {
  const CertifiedHead& head;
  const CertifiedInput& input;
  std::span<const SelectParams> params;
  std::span<const NoiseKey> keys;
  const Limits& limits;
  DrawMethod method;
  SampleOutput output;
};

// The hidden states and the output have been checked.
CertifiedStats RunSample(const SampleCall& call, std::span<CertifiedRow> rows,
                         const Execution& execution) {
  CheckPerRow("params", call.params.size(), call.input.hidden.rows);
  CheckPerRow("keys", call.keys.size(), call.input.hidden.rows);
  CheckMethod(call.method);
  const int64_t vocab = call.head.head().weight.rows;
  SampleQuestion question(call.params, call.keys, call.limits, call.method, call.output, vocab,
                          execution.backend);
  return RunCertifiedCall(call.head, call.input, question, rows, execution,
                          QuestionBytes(vocab, execution.backend));
}

}  // namespace

size_t CertifiedHead::SampleWorkspaceBytes(int64_t rows, const Execution& execution) const {
  return CertifiedCallBytes(*this, rows, execution,
                            QuestionBytes(head_.weight.rows, execution.backend));
}

CertifiedStats CertifiedHead::Sample(const CertifiedInput& input,
                                     std::span<const SelectParams> params,
                                     std::span<const NoiseKey> keys, const Limits& limits,
                                     DrawMethod method, std::span<TokenResult> results,
                                     std::span<CertifiedRow> rows,
                                     const Execution& execution) const {
  CheckHidden(*this, input.hidden);
  CheckSize("results", results.size(), input.hidden.rows);
  return RunSample({*this, input, params, keys, limits, method, {.results = results}}, rows,
                   execution);
}

CertifiedStats CertifiedHead::SampleIds(const CertifiedInput& input,
                                        std::span<const SelectParams> params,
                                        std::span<const NoiseKey> keys, const Limits& limits,
                                        DrawMethod method, std::span<int32_t> ids,
                                        std::span<RowStatus> statuses, std::span<CertifiedRow> rows,
                                        const Execution& execution) const {
  CheckHidden(*this, input.hidden);
  CheckSize("ids", ids.size(), input.hidden.rows);
  if (!statuses.empty()) CheckSize("statuses", statuses.size(), input.hidden.rows);
  return RunSample({*this, input, params, keys, limits, method, {.ids = ids, .statuses = statuses}},
                   rows, execution);
}

}  // namespace sluice
