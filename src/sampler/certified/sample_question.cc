// The tokens that the rules of selection look at, the whole softmax by a certified Gumbel-max,
// top-p by bounds of the mass, and the ordinary Sample on the dense head's logits for the rest.
#include "sampler/certified/sample_question.h"

#include <algorithm>

#include "head/certified/deciding_tokens.h"
#include "sampler/certified/certified_gumbel.h"
#include "sampler/certified/certified_nucleus.h"
#include "sampler/sample_row.h"
#include "semantics/select.h"
#include "semantics/validate.h"

namespace sluice {

using semantics::Token;

namespace {

Decides DecidesOf(const RowDraw& draw, int64_t vocab) {
  return DecidingTokens(draw.params, draw.key, draw.method, vocab);
}

}  // namespace

SampleQuestion::SampleQuestion(const Limits& limits, const SampleOutput& output, int64_t vocab,
                               Backend backend)
    : limits_(limits),
      output_(output),
      vocab_(vocab),
      selection_(SelectTableFor(backend)),
      draws_(DrawTableFor(backend)) {}

size_t SampleQuestion::Bytes(int64_t vocab, Backend backend) {
  return std::max(SelectTableFor(backend).workspace_bytes(vocab),
                  static_cast<size_t>(vocab) * sizeof(Token));
}

void SampleQuestion::Set(int64_t row, const TokenResult& result) const {
  const auto at = static_cast<size_t>(row);
  if (!output_.results.empty()) output_.results[at] = result;
  if (!output_.ids.empty()) output_.ids[at] = result.id;
  if (!output_.statuses.empty()) output_.statuses[at] = result.status;
}

RowQuestion::Need SampleQuestion::Prepare(int64_t row) {
  const RowDraw draw = DrawOf(row);
  if (!semantics::AreValid(draw.params, limits_) || !semantics::IsValid(draw.key)) {
    Fail(row, RowStatus::kBadParam);
    return Need::kNothing;
  }
  const bool is_mass = DecidesOf(draw, vocab_) == Decides::kMass;
  return is_mass && !IsNucleus(draw.params) ? Need::kDense : Need::kPlanes;
}

DenseReason SampleQuestion::Certify(int64_t row, RowCertificate& certificate,
                                    std::byte* workspace) {
  const RowDraw draw = DrawOf(row);
  const Decides decides = DecidesOf(draw, vocab_);
  const bool is_first = decides == Decides::kFirst;
  const int64_t k = is_first && !semantics::IsGreedy(draw.params) ? draw.params.top_k : 1;
  TopTokens top;
  if (!certificate.Top(k, top)) return DenseReason::kSurvivors;
  if (decides == Decides::kSoftmax) {
    return DrawFromSoftmax(row, draw, certificate, top.tokens[0], workspace);
  }
  if (decides == Decides::kMass) {
    return DrawFromNucleus(row, draw, certificate, top.tokens[0], workspace);
  }
  if (decides == Decides::kLikely) {
    const float scale = semantics::ScalesOf(draw.params).filter;
    const float least = semantics::MinPThreshold(draw.params.min_p, top.tokens[0].x, scale);
    if (!certificate.From(least, top)) return DenseReason::kSurvivors;
  }
  FromTokens(row, top, workspace);
  return DenseReason::kNone;
}

// The rules and the draw, on the tokens that decide.
void SampleQuestion::FromTokens(int64_t row, const TopTokens& top, std::byte* workspace) {
  const RowDraw draw = DrawOf(row);
  const semantics::SortedRow sorted{top.tokens.data(), std::ssize(top.tokens)};
  FromKept(row, draw, top, semantics::SelectInterval(sorted, draw.params, draw.key), workspace);
}

// The draw, from some of the row's first tokens.
void SampleQuestion::FromKept(int64_t row, const RowDraw& draw, const TopTokens& top,
                              const semantics::Interval& kept, std::byte* workspace) {
  const semantics::SortedRow sorted{top.tokens.data(), std::ssize(top.tokens)};
  TokenResult result;
  result.cut = semantics::CutOfInterval(sorted, kept);
  const auto tokens = top.tokens.subspan(static_cast<size_t>(kept.begin),
                                         static_cast<size_t>(kept.end - kept.begin));
  if (semantics::IsGreedy(draw.params)) {
    result.id = tokens[0].id;
  } else if (draw.method == DrawMethod::kCdf) {
    result.id = DrawCdf(draw, tokens, sorted.Max(), workspace);
  } else {
    auto* const x = reinterpret_cast<float*>(workspace);
    auto* const ids = reinterpret_cast<int32_t*>(workspace) + vocab_;
    for (size_t i = 0; i < tokens.size(); ++i) x[i] = tokens[i].x, ids[i] = tokens[i].id;
    result.id = draws_.draw_listed({x, ids, std::ssize(tokens)}, sorted.Max(),
                                   semantics::ScalesOf(draw.params).draw, draw.key);
  }
  Set(row, result);
}

void SampleQuestion::FromLogits(int64_t row, std::span<const float> logits, const RowMemory&,
                                std::byte* workspace) {
  const RowDraw draw = DrawOf(row);
  TokenResult result;
  SampleRow(
      {{logits.data(), DType::kF32, std::ssize(logits)}, draw.params, draw.key, limits_, false},
      draw.method, selection_, draws_, workspace, result);
  Set(row, result);
}

void SampleQuestion::Fail(int64_t row, RowStatus status) {
  TokenResult result;
  result.status = status;
  result.cut = semantics::CutOfStatus(status);
  Set(row, result);
}

// In the order of ids, as the definition sums.
int32_t SampleQuestion::DrawCdf(const RowDraw& draw, std::span<const Token> kept, float max,
                                std::byte* workspace) {
  const float scale = semantics::ScalesOf(draw.params).draw;
  auto* const by_id = reinterpret_cast<Token*>(workspace);
  std::copy(kept.begin(), kept.end(), by_id);
  std::sort(by_id, by_id + kept.size(), [](const Token& a, const Token& b) { return a.id < b.id; });
  uint64_t mass = 0;
  for (const Token& token : kept) mass += semantics::Weight(token.x, max, scale);
  if (mass == 0) return kept[0].id;
  const uint64_t threshold =
      semantics::CdfThreshold(draw.key, semantics::CdfStream(draw.key), mass);
  uint64_t running = 0;
  for (size_t i = 0; i < kept.size(); ++i) {
    running += semantics::Weight(by_id[i].x, max, scale);
    if (running > threshold) return by_id[i].id;
  }
  return -1;  // not reached: the threshold is below the mass
}

// first: the first token of the row.
DenseReason SampleQuestion::DrawFromSoftmax(int64_t row, const RowDraw& draw,
                                            RowCertificate& certificate, const Token& first,
                                            std::byte* workspace) {
  RowCertificate::Bottom bottom;
  if (WantsCuts() && !certificate.Last(bottom)) return DenseReason::kSurvivors;
  const float scale = semantics::ScalesOf(draw.params).draw;
  CertifiedGumbel gumbel(certificate, draws_, draw.key, first, scale, vocab_, workspace);
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

DenseReason SampleQuestion::DrawFromNucleus(int64_t row, const RowDraw& draw,
                                            RowCertificate& certificate, const Token& first,
                                            std::byte* workspace) {
  CertifiedNucleus nucleus(certificate, draw.params, draw.key, first, vocab_);
  if (!WantsCuts() && CertifiedNucleus::IsLazy(draw.params, draw.method, draw.key)) {
    CertifiedGumbel gumbel(certificate, draws_, draw.key, first,
                           semantics::ScalesOf(draw.params).draw, vocab_, workspace);
    TokenResult result;
    const DenseReason reason = nucleus.Draw(gumbel, result.id);
    if (reason == DenseReason::kNone) Set(row, result);
    return reason;
  }
  TopTokens known;
  semantics::Interval kept;
  if (!nucleus.Keep(known, kept)) return DenseReason::kMass;
  FromKept(row, draw, known, kept, workspace);
  return DenseReason::kNone;
}

}  // namespace sluice
