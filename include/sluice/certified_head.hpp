// The certified head: the tokens of the dense head, bit for bit, from a quarter of its bytes. Draws
// from one are certified_sample.hpp and Sampler::StepFromHead.
//
// Next to the weights the head stores planes: every row in four bits an element. A step scores all
// rows from the planes, each score with an interval that holds the defined logit
// (docs/certified-head.md), and computes from the weights only the few rows that may matter. Where
// an interval does not decide, it reads more, in the end the whole head: that costs time, never the
// answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sluice/head.hpp"
#include "sluice/status.hpp"

namespace sluice {

enum class CertificateKind : uint8_t {
  kDither4,  // 26 % of a 16-bit head; a wrong interval in one of 10^18 hidden states
  kStrict,   // 26 %, and 25 % more where that does not decide; never a wrong interval
};

// "dither4", "strict"; and back: an unknown name throws Error with the known ones.
std::string_view Name(CertificateKind kind);
CertificateKind CertificateKindByName(std::string_view name);

struct HeadPlaneOptions {
  CertificateKind kind = CertificateKind::kDither4;
  // The seed of the dither. Unset, the operating system gives one; keep it private: the promise of
  // dither4 holds for hidden states that do not depend on it.
  std::optional<uint64_t> seed = {};
  // Called now and then with the number of rows that are done: on threads of the parallel-for,
  // perhaps by several at once and in any order.
  void (*progress)(void* context, int64_t rows, int64_t vocab) = nullptr;
  void* progress_context = nullptr;
};

// The weights that Load compares with the hashes in the file. Reading them takes as long as one
// step of the dense head.
struct PlaneChecks {
  bool weights = true;
  bool planes = true;
};

// The planes of a head: immutable, cheap to copy, without the weights.
class HeadPlanes {
 public:
  // weight: [vocab, dim], finite. Throws Error naming the first element that is not.
  static HeadPlanes Build(const MatrixView& weight, const HeadPlaneOptions& options,
                          const ParallelFor& parallel = {});

  // The file is mapped, not read; it must not change while the planes are in use. Throws Error when
  // it is not a file of planes, damaged, of another version, or of other weights.
  static HeadPlanes Load(const std::string& path, const MatrixView& weight,
                         const PlaneChecks& checks = {}, const ParallelFor& parallel = {});

  // Into `path`, whole or not at all. A dither4 file holds the dither, so it is as private as the
  // seed: planes to publish should be strict, or built where they are used.
  void Save(const std::string& path) const;

  CertificateKind kind() const;
  int64_t vocab() const;
  int64_t dim() const;
  size_t bytes() const;  // in memory and as a file

  class Impl;  // the library's own

 private:
  friend struct PlaneAccess;
  HeadPlanes() = default;
  std::shared_ptr<const Impl> impl_;
};

// How a row got its answer.
enum class CertifiedPath : uint8_t {
  kNothing,  // its status was clear before anything was read
  kPlanes,   // the certificate held
  kAllowed,  // few tokens were allowed, and all of them were computed
  kDense,    // the whole head was read
};

// Why a row took the whole head.
enum class DenseReason : uint8_t {
  kNone,
  kHidden,      // the hidden state is not finite
  kSurvivors,   // more rows might matter than are worth reading one by one
  kParameters,  // measured on all tokens: typical, top-n-sigma; and where neither top-k nor min-p
                // comes first, XTC and a cdf draw without top-p
  kMass,  // of top-p on all tokens (also joint with top-k): bounds of their mass leave it open
};

std::string_view Name(CertifiedPath path);
std::string_view Name(DenseReason reason);

struct CertifiedRow {
  CertifiedPath path = CertifiedPath::kNothing;
  DenseReason reason = DenseReason::kNone;
  int32_t survivors = 0;  // rows of the head that were computed
  // How far the nearest row that was left out stays below what it would have had to reach, in
  // logits; of a draw from the whole softmax or from top-p on all tokens, for its maximum. +inf
  // when none was left out.
  float margin = 0.0f;
};

// The work of a call.
struct CertifiedStats {
  int64_t rows = 0;
  int64_t dense_rows = 0;
  int64_t survivors = 0;
  int64_t bytes_read = 0;   // of planes and weights; planes once for all rows of the call
  int64_t dense_bytes = 0;  // what the dense head reads in their place
  float least_margin = 0.0f;
};

struct CertifiedInput {
  MatrixView hidden = {};                 // [rows, dim], any dtype
  std::span<const int32_t> bitmask = {};  // empty, or ceil(vocab / 32) words a row: allowed tokens
};

// The first k tokens of each row in the total order. A row with fewer ends with id -1 and -inf; one
// with a status is all -1 and NaN.
struct CertifiedTopK {
  int32_t k = 1;
  std::span<int32_t> ids = {};       // [rows, k]
  std::span<float> logits = {};      // [rows, k]
  std::span<RowStatus> status = {};  // one a row
};

// Calls are const and may run concurrently, each with its own workspace. The weights and the bias
// are the caller's and must outlive the object.
class CertifiedHead {
 public:
  // Throws Error when planes and weights are not of the same shape and dtype, or a bias is not
  // finite.
  CertifiedHead(const DenseHead& head, HeadPlanes planes);

  const DenseHead& head() const { return head_; }
  const HeadPlanes& planes() const { return planes_; }

  size_t TopKWorkspaceBytes(int64_t rows, const Execution& execution) const;

  // rows: empty, or one a row, what became of it.
  CertifiedStats TopK(const CertifiedInput& input, const CertifiedTopK& top,
                      std::span<CertifiedRow> rows, const Execution& execution) const;

 private:
  DenseHead head_;
  HeadPlanes planes_;
};

}  // namespace sluice
