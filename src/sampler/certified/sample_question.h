// What a draw asks of a certified head: a token for each row, by its own parameters, noise and
// method, as Project and then Sample give it.
#pragma once

#include "draw/draw_table.h"
#include "head/certified/certified_call.h"
#include "select/select_table.h"
#include "semantics/draw.h"
#include "semantics/interval.h"

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

class SampleQuestion : public RowQuestion {
 public:
  SampleQuestion(const Limits& limits, const SampleOutput& output, int64_t vocab, Backend backend);

  // The workspace of a worker: a selection on dense logits, or a float and an id a token.
  static size_t Bytes(int64_t vocab, Backend backend);

  Need Prepare(int64_t row) override;
  DenseReason Certify(int64_t row, RowCertificate& certificate, std::byte* workspace) override;
  void FromTokens(int64_t row, const TopTokens& top, std::byte* workspace) override;
  void FromLogits(int64_t row, std::span<const float> logits, const RowMemory& memory,
                  std::byte* workspace) override;
  void Fail(int64_t row, RowStatus status) override;

 private:
  virtual RowDraw DrawOf(int64_t row) const = 0;

  bool WantsCuts() const { return !output_.results.empty(); }
  void Set(int64_t row, const TokenResult& result) const;
  void FromKept(int64_t row, const RowDraw& draw, const TopTokens& top,
                const semantics::Interval& kept, std::byte* workspace);
  static int32_t DrawCdf(const RowDraw& draw, std::span<const semantics::Token> kept, float max,
                         std::byte* workspace);
  DenseReason DrawFromSoftmax(int64_t row, const RowDraw& draw, RowCertificate& certificate,
                              const semantics::Token& first, std::byte* workspace);
  DenseReason DrawFromNucleus(int64_t row, const RowDraw& draw, RowCertificate& certificate,
                              const semantics::Token& first, std::byte* workspace);

  const Limits limits_;
  const SampleOutput output_;
  const int64_t vocab_;
  const SelectTable& selection_;
  const DrawTable& draws_;
};

}  // namespace sluice
