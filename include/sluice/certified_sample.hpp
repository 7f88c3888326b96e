// Tokens drawn from a certified head: those of Project and then Sample, from a quarter of the
// bytes. Steps of a Sampler's requests are Sampler::StepFromHead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/certified_head.hpp"
#include "sluice/draw.hpp"

namespace sluice {

// Of all calls that draw from a head.
size_t SampleFromHeadWorkspaceBytes(const CertifiedHead& head, int64_t rows,
                                    const Execution& execution);

// As Project and then Sample: the same ids, statuses and Cuts. params and keys: one or one a row.
// rows: empty, or one a row, how each got its answer. A Cut of top-p on all tokens takes their mass
// to within the weight of one token; the token alone costs less by SampleIdsFromHead.
CertifiedStats SampleFromHead(const CertifiedHead& head, const CertifiedInput& input,
                              std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                              const Limits& limits, DrawMethod method,
                              std::span<TokenResult> results, std::span<CertifiedRow> rows,
                              const Execution& execution);

// The same ids and statuses alone. statuses: empty, or one a row.
CertifiedStats SampleIdsFromHead(const CertifiedHead& head, const CertifiedInput& input,
                                 std::span<const SelectParams> params,
                                 std::span<const NoiseKey> keys, const Limits& limits,
                                 DrawMethod method, std::span<int32_t> ids,
                                 std::span<RowStatus> statuses, std::span<CertifiedRow> rows,
                                 const Execution& execution);

}  // namespace sluice
