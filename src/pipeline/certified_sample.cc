// Draws from a certified head: the tokens that the rules of selection look at, or the whole softmax
// by a certified Gumbel-max, and the ordinary Sample on the dense head's logits for the rest.
//
// A Gumbel draw is an argmax, of fl(fl(fl(x - m) scale) + g) with noise g that a token's id alone
// decides. Every rounding in it is monotone in x, so the same expression of an upper bound of x is
// an upper bound of the score, and a token whose bound stays below a score that was computed cannot
// win. No mass is needed, and no sort.
#include <algorithm>

#include "head/certified_call.h"
#include "head/deciding_tokens.h"
#include "pipeline/sample_row.h"
#include "semantics/draw.h"
#include "semantics/select.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::Token;
using semantics::Winner;

class SampleQuestion : public RowQuestion {
 public:
  SampleQuestion(std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                 const Limits& limits, DrawMethod method, std::span<TokenResult> results,
                 int64_t vocab, Backend backend)
      : params_(params),
        keys_(keys),
        limits_(limits),
        method_(method),
        results_(results),
        vocab_(vocab),
        selection_(SelectTableFor(backend)),
        draws_(DrawTableFor(backend)) {}

  Need Prepare(int64_t row) override {
    const SelectParams& params = PerRow(params_, row);
    if (!semantics::AreValid(params, limits_) || !semantics::IsValid(PerRow(keys_, row))) {
      Fail(row, RowStatus::kBadParam);
      return Need::kNothing;
    }
    return DecidingTokens(params, method_, vocab_) == Decides::kMass ? Need::kDense : Need::kPlanes;
  }

  bool Certify(int64_t row, RowCertificate& certificate, std::byte* workspace) override {
    const SelectParams& params = PerRow(params_, row);
    const Decides decides = DecidingTokens(params, method_, vocab_);
    const bool is_first = decides == Decides::kFirst;
    const int64_t k = is_first && !semantics::IsGreedy(params) ? params.top_k : 1;
    TopTokens top;
    if (!certificate.Top(k, top)) return false;
    if (decides == Decides::kSoftmax) {
      return DrawFromSoftmax(row, certificate, top.tokens[0], workspace);
    }
    if (decides == Decides::kLikely) {
      const float scale = semantics::ScalesOf(params).filter;
      const float least = semantics::MinPThreshold(params.min_p, top.tokens[0].x, scale);
      if (!certificate.From(least, top)) return false;
    }
    FromTokens(row, top, workspace);
    return true;
  }

  // The rules and the draw, on the tokens that decide.
  void FromTokens(int64_t row, const TopTokens& top, std::byte* workspace) override {
    const SelectParams& params = PerRow(params_, row);
    const NoiseKey& key = PerRow(keys_, row);
    const semantics::SortedRow sorted{top.tokens.data(), std::ssize(top.tokens)};
    const semantics::Interval kept = semantics::SelectInterval(sorted, params, key);
    TokenResult& result = ResultOf(row);
    result = TokenResult{};
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
  }

  void FromLogits(int64_t row, std::span<const float> logits, const RowMemory&,
                  std::byte* workspace) override {
    SampleRow({{logits.data(), DType::kF32, std::ssize(logits)},
               PerRow(params_, row),
               PerRow(keys_, row),
               limits_,
               false},
              method_, selection_, draws_, workspace, ResultOf(row));
  }

  void Fail(int64_t row, RowStatus status) override {
    TokenResult& result = ResultOf(row);
    result = TokenResult{};
    result.status = status;
    result.cut = semantics::CutOfStatus(status);
  }

 private:
  TokenResult& ResultOf(int64_t row) const { return results_[static_cast<size_t>(row)]; }

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
  bool DrawFromSoftmax(int64_t row, RowCertificate& certificate, const Token& first,
                       std::byte* workspace) const {
    RowCertificate::Bottom bottom;
    if (!certificate.Last(bottom)) return false;
    const NoiseKey& key = PerRow(keys_, row);
    const float scale = semantics::ScalesOf(PerRow(params_, row)).draw;
    const auto size = static_cast<size_t>(vocab_);
    const auto score_of = [&](float x, int32_t id) {
      const float g =
          semantics::Gumbel(semantics::NoiseBits(key, semantics::GumbelStream(key), id));
      return semantics::LogWeight(x, first.x, scale) + g;
    };

    // A guess: what the draw from the scores gives.
    Cut all;
    all.lower = semantics::kLowestValue;
    all.ties_kept = all.count = bottom.support;
    const semantics::Row scores{certificate.intervals().scores, DType::kF32, vocab_};
    const int32_t guess = draws_.draw(scores, all, first.x, scale, DrawMethod::kGumbel, key);
    Winner best{score_of(first.x, first.id), first};
    const auto challenge = [&](int32_t id) {
      const float x = certificate.Compute(id);
      if (x == -semantics::Infinity()) return;
      const Winner candidate{score_of(x, id), {x, id}};
      if (semantics::Beats(candidate, best)) best = candidate;
    };
    if (guess >= 0) challenge(guess);

    // Those who may still win, by their bounds, the best bound first.
    auto* const uppers = reinterpret_cast<float*>(workspace);
    auto* const ids = reinterpret_cast<int32_t*>(workspace) + vocab_;
    for (size_t v = 0; v < size; ++v) uppers[v] = certificate.Upper(static_cast<int64_t>(v));
    const int64_t listed =
        draws_.list_contenders({uppers, size}, first.x, scale, key, best.score, ids);
    int64_t contenders = 0;
    const auto may_win = [&](int32_t id, float& bound) {
      const float upper = certificate.Upper(id);
      bound = upper == -semantics::Infinity() ? upper : score_of(upper, id);
      return bound >= best.score;
    };
    auto* const bounds = uppers;  // of which nothing is needed any more
    for (int64_t i = 0; i < listed; ++i) {
      float bound;
      if (!may_win(ids[i], bound)) continue;
      certificate.Refine(ids[i]);
      if (may_win(ids[i], bound)) ids[contenders++] = ids[i];
    }
    const auto in_order = [&](int32_t a, int32_t b) {
      return bounds[a] > bounds[b] || (bounds[a] == bounds[b] && a < b);
    };
    for (int64_t i = 0; i < contenders; ++i) may_win(ids[i], bounds[ids[i]]);
    std::sort(ids, ids + contenders, in_order);
    for (int64_t i = 0; i < contenders && bounds[ids[i]] >= best.score; ++i) {
      if (i > RowCertificate::Budget(vocab_)) return false;
      challenge(ids[i]);
    }

    TokenResult& result = ResultOf(row);
    result = TokenResult{};
    result.id = best.token.id;
    result.cut.count = bottom.support;
    result.cut.lower = bottom.value + 0.0f;
    result.cut.ties_kept = bottom.ties;
    return true;
  }

  std::span<const SelectParams> params_;
  std::span<const NoiseKey> keys_;
  const Limits& limits_;
  DrawMethod method_;
  std::span<TokenResult> results_;
  int64_t vocab_;
  const SelectTable& selection_;
  const DrawTable& draws_;
};

// A worker's: a selection on dense logits, or a float and an id a token.
size_t QuestionBytes(int64_t vocab, Backend backend) {
  return std::max(SelectTableFor(backend).workspace_bytes(vocab),
                  static_cast<size_t>(vocab) * sizeof(Token));
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
  CheckPerRow("params", params.size(), input.hidden.rows);
  CheckPerRow("keys", keys.size(), input.hidden.rows);
  CheckMethod(method);
  CheckSize("results", results.size(), input.hidden.rows);
  const int64_t vocab = head_.weight.rows;
  SampleQuestion question(params, keys, limits, method, results, vocab, execution.backend);
  return RunCertifiedCall(*this, input, question, rows, execution,
                          QuestionBytes(vocab, execution.backend));
}

}  // namespace sluice
