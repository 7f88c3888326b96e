// Draws from a certified head with parameters and keys of the caller's.
#include "sampler/certified/sample_question.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

struct SampleCall {
  const CertifiedHead& head;
  const CertifiedInput& input;
  std::span<const SelectParams> params;
  std::span<const NoiseKey> keys;
  const Limits& limits;
  DrawMethod method;
  SampleOutput output;
};

class GivenQuestion : public SampleQuestion {
 public:
  GivenQuestion(const SampleCall& call, int64_t vocab, Backend backend)
      : SampleQuestion(call.limits, call.output, vocab, backend), call_(call) {}

 private:
  RowDraw DrawOf(int64_t row) const override {
    return {PerRow(call_.params, row), PerRow(call_.keys, row), call_.method};
  }

  const SampleCall& call_;
};

// The hidden states and the output have been checked.
CertifiedStats RunSample(const SampleCall& call, std::span<CertifiedRow> rows,
                         const Execution& execution) {
  CheckPerRow("params", call.params.size(), call.input.hidden.rows);
  CheckPerRow("keys", call.keys.size(), call.input.hidden.rows);
  CheckMethod(call.method);
  const int64_t vocab = call.head.head().weight.rows;
  GivenQuestion question(call, vocab, execution.backend);
  return RunCertifiedCall(call.head, call.input, question, rows, execution,
                          SampleQuestion::Bytes(vocab, execution.backend));
}

}  // namespace

size_t CertifiedHead::SampleWorkspaceBytes(int64_t rows, const Execution& execution) const {
  return CertifiedCallBytes(*this, rows, execution,
                            SampleQuestion::Bytes(head_.weight.rows, execution.backend));
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
