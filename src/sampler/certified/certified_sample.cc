// Draws from a certified head with parameters and keys of the caller's.
#include "sluice/certified_sample.hpp"

#include "sampler/certified/certified_draw.h"
#include "support/check.h"

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

// The hidden states and the output have been checked.
CertifiedStats Run(const SampleCall& call, std::span<CertifiedRow> results,
                   const Execution& execution) {
  CheckPerRow("params", call.params.size(), call.input.hidden.rows);
  CheckPerRow("keys", call.keys.size(), call.input.hidden.rows);
  CheckMethod(call.method);
  const int64_t vocab = call.head.head().weight.rows;
  CertifiedRows rows(call.head, call.input, results, execution,
                     CertifiedDraw::Bytes(vocab, execution.backend));
  const CertifiedDraw draw(call.limits, call.output, vocab, execution.backend);
  return draw.Run(
      rows, execution.parallel,
      [&](int64_t r) { return RowDraw{PerRow(call.params, r), PerRow(call.keys, r), call.method}; },
      [](int64_t) { return std::optional<semantics::AdjustInput>(); });
}

}  // namespace

size_t SampleFromHeadWorkspaceBytes(const CertifiedHead& head, int64_t rows,
                                    const Execution& execution) {
  return CertifiedRows::Bytes(head, rows, execution,
                              CertifiedDraw::Bytes(head.head().weight.rows, execution.backend));
}

CertifiedStats SampleFromHead(const CertifiedHead& head, const CertifiedInput& input,
                              std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                              const Limits& limits, DrawMethod method,
                              std::span<TokenResult> results, std::span<CertifiedRow> rows,
                              const Execution& execution) {
  CheckHidden(head, input.hidden);
  CheckSize("results", results.size(), input.hidden.rows);
  return Run({head, input, params, keys, limits, method, {.results = results}}, rows, execution);
}

CertifiedStats SampleIdsFromHead(const CertifiedHead& head, const CertifiedInput& input,
                                 std::span<const SelectParams> params,
                                 std::span<const NoiseKey> keys, const Limits& limits,
                                 DrawMethod method, std::span<int32_t> ids,
                                 std::span<RowStatus> statuses, std::span<CertifiedRow> rows,
                                 const Execution& execution) {
  CheckHidden(head, input.hidden);
  CheckSize("ids", ids.size(), input.hidden.rows);
  if (!statuses.empty()) CheckSize("statuses", statuses.size(), input.hidden.rows);
  return Run({head, input, params, keys, limits, method, {.ids = ids, .statuses = statuses}}, rows,
             execution);
}

}  // namespace sluice
