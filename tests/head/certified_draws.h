// Draws from a certified head, and the same from the dense head.
#pragma once

#include <vector>

#include "sluice/certified_sample.hpp"
#include "sluice/draw.hpp"
#include "tests/head/certified.h"

namespace sluice::test {

struct Drawn {
  std::vector<TokenResult> results;
  std::vector<CertifiedRow> rows;
  CertifiedStats stats;
};

// call(drawn, execution): fills the results and the rows; answers with the statistics.
template <typename Call>
Drawn RunWithMemory(const CertifiedHead& head, const CertifiedInput& input, Execution execution,
                    Call call) {
  const auto rows = static_cast<size_t>(input.hidden.rows);
  Drawn drawn{std::vector<TokenResult>(rows), std::vector<CertifiedRow>(rows), {}};
  AlignedBytes memory(SampleFromHeadWorkspaceBytes(head, input.hidden.rows, execution));
  execution.workspace = memory.span();
  drawn.stats = call(drawn, execution);
  return drawn;
}

inline Drawn RunSample(const CertifiedHead& head, const CertifiedInput& input,
                       std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                       DrawMethod method, const Execution& execution) {
  return RunWithMemory(head, input, execution, [&](Drawn& drawn, const Execution& with) {
    return SampleFromHead(head, input, params, keys, {}, method, drawn.results, drawn.rows, with);
  });
}

// Without Cuts.
inline Drawn RunSampleIds(const CertifiedHead& head, const CertifiedInput& input,
                          std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                          DrawMethod method, const Execution& execution) {
  return RunWithMemory(head, input, execution, [&](Drawn& drawn, const Execution& with) {
    std::vector<int32_t> ids(drawn.rows.size());
    std::vector<RowStatus> statuses(drawn.rows.size());
    const CertifiedStats stats =
        SampleIdsFromHead(head, input, params, keys, {}, method, ids, statuses, drawn.rows, with);
    for (size_t r = 0; r < ids.size(); ++r) {
      drawn.results[r].id = ids[r];
      drawn.results[r].status = statuses[r];
    }
    return stats;
  });
}

inline std::vector<TokenResult> WithoutCuts(std::vector<TokenResult> results) {
  for (TokenResult& result : results) result.cut = {};
  return results;
}

inline std::vector<TokenResult> DenseSample(const DenseHead& head, const CertifiedInput& input,
                                            std::span<const SelectParams> params,
                                            std::span<const NoiseKey> keys, DrawMethod method) {
  const auto logits = DenseLogits(head, input);
  const Batch batch(logits);
  Execution execution{Backend::kRef};
  std::vector<TokenResult> results(logits.size());
  AlignedBytes memory(SelectWorkspaceBytes(batch.view(), execution));
  execution.workspace = memory.span();
  Sample({batch.view(), params, keys}, method, results, execution);
  return results;
}

}  // namespace sluice::test
