// Tokens drawn from a certified head in device memory: the answers of certified_sample.hpp, bit for
// bit. Link Sluice::cuda.
#pragma once

#include <cstdint>

#include "sluice/cuda/head.hpp"
#include "sluice/cuda/rows.hpp"

namespace sluice::cuda {

// As Project and then SampleIds. ids: one a row; statuses: empty, or one a row.
void SampleIdsFromHead(const CertifiedCall& call, const RowParams& params, DrawMethod method,
                       DeviceArray<int32_t> ids, DeviceArray<RowStatus> statuses, void* stream);

}  // namespace sluice::cuda
