// The certified head: the tokens of the dense head, bit for bit, from a quarter of its bytes.
//
// Beside the weights lie planes: every row in four bits an element. A step scores all rows from
// the planes, each score with an interval that holds the defined logit (docs/certified-head.md),
// and computes from the weights only the few rows that may matter. Where an interval does not
// decide, more is read, in the end the whole head: that costs time, never the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "sluice/draw.hpp"
#include "sluice/head.hpp"

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
  // Of the dither. Unset, the operating system gives one; keep it private: the promise of dither4
  // holds for hidden states that do not depend on it.
  std::optional<uint64_t> seed = {};
  // Called now and then, on a thread of the parallel-for, with the number of rows that are done.
  void (*progress)(void* context, int64_t rows, int64_t vocab) = nullptr;
  void* progress_context = nullptr;
};

// What Load compares with the hashes in the file. Reading the weights takes as long as one step of
// the dense head.
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

}  // namespace sluice
