// The tokens that the rules of selection look at, the whole softmax by a certified Gumbel-max,
// top-p by bounds of the mass, and the ordinary Sample on the dense head's logits for the rest.
#include "sampler/certified/certified_draw.h"

#include <algorithm>

#include "sampler/certified/certified_gumbel.h"
#include "sampler/certified/certified_nucleus.h"
#include "sampler/sample_row.h"
#include "semantics/select.h"
#include "semantics/validate.h"

namespace sluice {

using semantics::FilterClass;
using semantics::Token;

namespace {

FilterClass FilterClassOfDraw(const RowDraw& draw, int64_t vocab) {
  return semantics::FilterClassOf(draw.params, draw.key, draw.method, vocab);
}

}  // namespace

CertifiedDraw::CertifiedDraw(const Limits& limits, const SampleOutput& output, int64_t vocab,
                             Backend backend)
    : limits_(limits),
      output_(output),
      vocab_(vocab),
      selection_(SelectTableFor(backend)),
      draws_(DrawTableFor(backend)) {}

size_t CertifiedDraw::Bytes(int64_t vocab, Backend backend) {
  return std::max(SelectTableFor(backend).workspace_bytes(vocab),
                  static_cast<size_t>(vocab) * sizeof(Token));
}

void CertifiedDraw::Set(int64_t row, const TokenResult& result) const {
  const auto at = static_cast<size_t>(row);
  if (!output_.results.empty()) output_.results[at] = result;
  if (!output_.ids.empty()) output_.ids[at] = result.id;
  if (!output_.statuses.empty()) output_.statuses[at] = result.status;
}

void CertifiedDraw::Fail(int64_t row, RowStatus status) const {
  TokenResult result;
  result.status = status;
  result.cut = semantics::CutOfStatus(status);
  Set(row, result);
}

CertifiedRows::Need CertifiedDraw::NeedOf(const RowDraw& draw) const {
  using Need = CertifiedRows::Need;
  if (!semantics::AreValid(draw.params, limits_) || !semantics::IsValid(draw.key)) {
    return Need::kNothing;
  }
  const bool is_mass = FilterClassOfDraw(draw, vocab_) == FilterClass::kMass;
  return is_mass && !semantics::IsNucleus(draw.params) ? Need::kDense : Need::kPlanes;
}

DenseReason CertifiedDraw::DrawFrom(int64_t row, const RowDraw& draw, RowCertificate& certificate,
                                    std::byte* memory) const {
  if (certificate.status() != RowStatus::kOk) {
    Fail(row, certificate.status());
    return DenseReason::kNone;
  }
  if (const CertifiedTokens* const allowed = certificate.allowed(); allowed != nullptr) {
    DrawFromTokens(row, draw, *allowed, memory);
    return DenseReason::kNone;
  }
  const FilterClass filter_class = FilterClassOfDraw(draw, vocab_);
  const bool is_first = filter_class == FilterClass::kFirst;
  const int64_t k = is_first && !semantics::IsGreedy(draw.params) ? draw.params.top_k : 1;
  std::optional<CertifiedTokens> top = certificate.Top(k);
  if (!top.has_value()) return DenseReason::kSurvivors;
  const Token first = top->data[0];
  if (filter_class == FilterClass::kSoftmax) {
    return DrawFromSoftmax(row, draw, certificate, first, memory);
  }
  if (filter_class == FilterClass::kMass) {
    return DrawFromNucleus(row, draw, certificate, first, memory);
  }
  if (filter_class == FilterClass::kLikely) {
    const float scale = semantics::ScalesOf(draw.params).filter;
    top = certificate.From(semantics::MinPThreshold(draw.params.min_p, first.x, scale));
    if (!top.has_value()) return DenseReason::kSurvivors;
  }
  DrawFromTokens(row, draw, *top, memory);
  return DenseReason::kNone;
}

// The rules and the draw, on the tokens that decide.
void CertifiedDraw::DrawFromTokens(int64_t row, const RowDraw& draw, const CertifiedTokens& tokens,
                                   std::byte* memory) const {
  const semantics::SortedRow sorted{tokens.data, tokens.size};
  DrawFromKept(row, draw, tokens, semantics::SelectInterval(sorted, draw.params, draw.key), memory);
}

// The draw, from some of the row's first tokens.
void CertifiedDraw::DrawFromKept(int64_t row, const RowDraw& draw, const CertifiedTokens& tokens,
                                 const semantics::Interval& kept, std::byte* memory) const {
  const semantics::SortedRow sorted{tokens.data, tokens.size};
  TokenResult result;
  result.cut = semantics::CutOfInterval(sorted, kept);
  const auto drawn_from = tokens.span().subspan(static_cast<size_t>(kept.begin),
                                                static_cast<size_t>(kept.end - kept.begin));
  if (semantics::IsGreedy(draw.params)) {
    result.id = drawn_from[0].id;
  } else if (draw.method == DrawMethod::kCdf) {
    result.id = DrawCdf(draw, drawn_from, sorted.Max(), memory);
  } else {
    auto* const x = reinterpret_cast<float*>(memory);
    auto* const ids = reinterpret_cast<int32_t*>(memory) + vocab_;
    for (size_t i = 0; i < drawn_from.size(); ++i) {
      x[i] = drawn_from[i].x;
      ids[i] = drawn_from[i].id;
    }
    result.id = draws_.draw_listed({x, ids, std::ssize(drawn_from)}, sorted.Max(),
                                   semantics::ScalesOf(draw.params).draw, draw.key);
  }
  Set(row, result);
}

void CertifiedDraw::DrawFromLogits(int64_t row, const RowDraw& draw, std::span<const float> logits,
                                   std::byte* memory) const {
  TokenResult result;
  SampleRow(
      {{logits.data(), DType::kF32, std::ssize(logits)}, draw.params, draw.key, limits_, false},
      draw.method, selection_, draws_, memory, result);
  Set(row, result);
}

// In the order of ids, as the definition sums.
int32_t CertifiedDraw::DrawCdf(const RowDraw& draw, std::span<const Token> kept, float max,
                               std::byte* memory) {
  const float scale = semantics::ScalesOf(draw.params).draw;
  auto* const by_id = reinterpret_cast<Token*>(memory);
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
DenseReason CertifiedDraw::DrawFromSoftmax(int64_t row, const RowDraw& draw,
                                           RowCertificate& certificate, const Token& first,
                                           std::byte* memory) const {
  std::optional<RowCertificate::Bottom> bottom;
  if (NeedsCuts()) {
    bottom = certificate.Last();
    if (!bottom.has_value()) return DenseReason::kSurvivors;
  }
  const float scale = semantics::ScalesOf(draw.params).draw;
  CertifiedGumbel gumbel(certificate, draws_, draw.key, first, scale, vocab_, memory);
  Token winner;
  if (!gumbel.Draw(nullptr, winner)) return DenseReason::kSurvivors;
  TokenResult result;
  result.id = winner.id;
  if (bottom.has_value()) {
    result.cut.count = bottom->support;
    result.cut.lower = bottom->value + 0.0f;
    result.cut.ties_kept = bottom->ties;
  }
  Set(row, result);
  return DenseReason::kNone;
}

DenseReason CertifiedDraw::DrawFromNucleus(int64_t row, const RowDraw& draw,
                                           RowCertificate& certificate, const Token& first,
                                           std::byte* memory) const {
  CertifiedNucleus nucleus(certificate, draw.params, draw.key, first, vocab_);
  if (!NeedsCuts() && CertifiedNucleus::IsLazy(draw.params, draw.method, draw.key)) {
    CertifiedGumbel gumbel(certificate, draws_, draw.key, first,
                           semantics::ScalesOf(draw.params).draw, vocab_, memory);
    TokenResult result;
    const DenseReason reason = nucleus.Draw(gumbel, result.id);
    if (reason == DenseReason::kNone) Set(row, result);
    return reason;
  }
  CertifiedTokens known;
  semantics::Interval kept;
  if (!nucleus.Keep(known, kept)) return DenseReason::kMass;
  DrawFromKept(row, draw, known, kept, memory);
  return DenseReason::kNone;
}

}  // namespace sluice
