// From hidden states to logits in device memory: the answers of head.hpp and certified_head.hpp,
// bit for bit. Draws from a certified head are cuda/certified_sample.hpp. Link Sluice::cuda.
//
// As in cuda/rows.hpp, a call checks its arguments, enqueues its kernels on the stream and returns:
// it takes no memory, waits for nothing and can be captured in a CUDA graph. Rows that a
// certificate does not decide are decided on the device, in the end by the dense head.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/certified_head.hpp"
#include "sluice/cuda/rows.hpp"

namespace sluice::cuda {

// logit[v] = <weight[v], hidden> + bias[v] in the order of additions of docs/semantics.md.
struct HeadWeights {
  MatrixView weight = {};              // [vocab, dim]
  DeviceArray<const float> bias = {};  // empty, or one a token
};

// hidden: [rows, dim], any dtype. logits: fp32, [rows, vocab].
void Project(const HeadWeights& head, const MatrixView& hidden, const MutableLogitsView& logits,
             void* stream);

// The logits of some tokens only. ids: [rows, n] with one n for all rows; logits: as many.
// Where an id is not one of the vocabulary's the logit is NaN.
void ProjectTokens(const HeadWeights& head, const MatrixView& hidden,
                   DeviceArray<const int32_t> ids, DeviceArray<float> logits, void* stream);

// The planes of a head in device memory that the caller owns. Not those of the host: their order is
// one that tensor cores read.
struct DevicePlanes {
  CertificateKind kind = CertificateKind::kDither4;
  DType dtype = DType::kF32;  // of the weights
  int64_t vocab = 0;
  int64_t dim = 0;
  DeviceArray<const std::byte> memory = {};
};

size_t DevicePlaneBytes(const HeadPlanes& planes);

// memory: at least DevicePlaneBytes, aligned to 256. Waits for the copy: `planes` may go.
DevicePlanes UploadPlanes(const HeadPlanes& planes, DeviceArray<std::byte> memory, void* stream);

// How a row was decided, as CertifiedRow. survivors counts the rows of the head that were computed
// one by one; where they were too many for that, those that were found until then, which may differ
// from call to call.
struct HeadRow {
  CertifiedPath path = CertifiedPath::kNothing;
  DenseReason reason = DenseReason::kNone;
  int32_t survivors = 0;
};

struct CertifiedCall {
  HeadWeights head = {};
  DevicePlanes planes = {};
  MatrixView hidden = {};                   // [rows, dim], any dtype
  DeviceArray<const int32_t> bitmask = {};  // empty, or ceil(vocab / 32) words a row
  DeviceArray<std::byte> workspace = {};    // CertifiedWorkspaceBytes, aligned to 256
  DeviceArray<HeadRow> rows = {};           // empty, or one a row
  // Empty, or one a row: how many rows of the second plane of strict planes were read for it, those
  // that were read twice counted twice.
  DeviceArray<int32_t> refined = {};
};

// For calls with as many hidden states or fewer.
size_t CertifiedWorkspaceBytes(const DevicePlanes& planes, int64_t rows);

// The bytes of planes and weights that a call read, from its results for its rows, on the host; the
// planes and the whole head once for all rows. refined: empty, or as many.
int64_t BytesRead(const DevicePlanes& planes, std::span<const HeadRow> rows,
                  std::span<const int32_t> refined = {});

inline constexpr int32_t kMostCertifiedK = 2048;
inline constexpr int64_t kMostCertifiedRows = 1024;

// As sluice::CertifiedTopK, with k up to kMostCertifiedK.
struct CertifiedTopK {
  int32_t k = 1;
  DeviceArray<int32_t> ids = {};       // [rows, k]
  DeviceArray<float> logits = {};      // [rows, k]
  DeviceArray<RowStatus> status = {};  // one a row
};
void TopK(const CertifiedCall& call, const CertifiedTopK& top, void* stream);

}  // namespace sluice::cuda
