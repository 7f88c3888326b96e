// Draws from a certified head: a token for each row, by its own parameters, noise and method, as
// Project and then Sample give it. They pull from the head what decides a row (certified_rows.h).
#pragma once

#include <optional>

#include "draw/draw_table.h"
#include "head/certified/certified_rows.h"
#include "select/select_table.h"
#include "semantics/draw/draw.h"
#include "semantics/filters/filter_class.h"
#include "semantics/interval.h"
#include "support/rows.h"

namespace sluice {

// Where the answers go: whole results, or the ids and statuses alone.
struct SampleOutput {
  std::span<TokenResult> results = {};
  std::span<int32_t> ids = {};
  std::span<RowStatus> statuses = {};
};

struct RowDraw {
  const SelectParams& params;
  NoiseKey key;
  DrawMethod method;
};

class CertifiedDraw {
 public:
  CertifiedDraw(const Limits& limits, const SampleOutput& output, int64_t vocab, Backend backend);

  // The workspace of a worker: a selection on dense logits, or a float and an id a token.
  static size_t Bytes(int64_t vocab, Backend backend);

  // draw_of(row): its RowDraw. adjust_of(row): what changes its logits, as an optional AdjustInput;
  // called once.
  template <typename DrawOf, typename AdjustOf>
  CertifiedStats Run(CertifiedRows& rows, const ParallelFor& parallel, const DrawOf& draw_of,
                     const AdjustOf& adjust_of) const {
    ForEachRow(parallel, rows.size(), [&](int64_t r, int) {
      const CertifiedRows::Need need = NeedOf(draw_of(r));
      if (need == CertifiedRows::Need::kNothing) return Fail(r, RowStatus::kBadParam);
      const std::optional<semantics::AdjustInput> adjust = adjust_of(r);
      const RowStatus status = rows.Plan(r, need, adjust.has_value() ? &*adjust : nullptr);
      if (status != RowStatus::kOk) Fail(r, status);
    });
    rows.Score();
    ForEachRow(parallel, rows.size(), [&](int64_t r, int worker) {
      std::optional<RowCertificate> certificate = rows.Certificate(r, worker);
      if (!certificate.has_value()) return;
      rows.Close(r, *certificate, DrawFrom(r, draw_of(r), *certificate, rows.Memory(worker)));
    });
    ForEachRow(parallel, rows.ProjectRest(), [&](int64_t i, int worker) {
      const CertifiedRows::DenseRow row = rows.Logits(i);
      DrawFromLogits(row.row, draw_of(row.row), row.logits, rows.Memory(worker));
    });
    return rows.Finish();
  }

 private:
  // kNothing: of parameters that no row may have.
  CertifiedRows::Need NeedOf(const RowDraw& draw) const;
  // Why the certificate does not decide the token; kNone: it does, or the row has none.
  DenseReason DrawFrom(int64_t row, const RowDraw& draw, RowCertificate& certificate,
                       std::byte* memory) const;
  DenseReason DrawFromSoftmax(int64_t row, const RowDraw& draw, RowCertificate& certificate,
                              const semantics::Token& first, std::byte* memory) const;
  DenseReason DrawFromNucleus(int64_t row, const RowDraw& draw, RowCertificate& certificate,
                              const semantics::Token& first, std::byte* memory) const;
  void DrawFromTokens(int64_t row, const RowDraw& draw, const CertifiedTokens& tokens,
                      std::byte* memory) const;
  void DrawFromKept(int64_t row, const RowDraw& draw, const CertifiedTokens& tokens,
                    const semantics::Interval& kept, std::byte* memory) const;
  static int32_t DrawCdf(const RowDraw& draw, std::span<const semantics::Token> kept, float max,
                         std::byte* memory);
  void DrawFromLogits(int64_t row, const RowDraw& draw, std::span<const float> logits,
                      std::byte* memory) const;

  bool NeedsCuts() const { return !output_.results.empty(); }
  void Set(int64_t row, const TokenResult& result) const;
  void Fail(int64_t row, RowStatus status) const;

  const Limits limits_;
  const SampleOutput output_;
  const int64_t vocab_;
  const SelectTable& selection_;
  const DrawTable& draws_;
};

}  // namespace sluice
