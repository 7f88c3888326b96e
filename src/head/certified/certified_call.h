// The course of a call of a certified head: scores for all rows from one read of the planes, then
// row by row a certificate, then the dense head for the rows that it could not answer.
#pragma once

#include <span>

#include "head/certified/row_certificate.h"
#include "sluice/certified_head.hpp"

namespace sluice {

// What a call wants to know of each hidden state. Rows are asked about concurrently.
class RowQuestion {
 public:
  virtual ~RowQuestion() = default;

  enum class Need : uint8_t { kNothing, kPlanes, kDense };
  // kNothing: answered, by its parameters alone.
  virtual Need Prepare(int64_t row) = 0;
  // What changes the row's logits, but for the bitmask of the input; asked once. False: nothing
  // does. Its lists must stay as they are, and those of the bias ascend by id.
  virtual bool Adjusts(int64_t row, semantics::AdjustInput& adjust);
  // From a certificate that has been started and whose status is ok; why it does not decide, kNone:
  // it does.
  virtual DenseReason Certify(int64_t row, RowCertificate& certificate, std::byte* workspace) = 0;
  // From all allowed tokens.
  virtual void FromTokens(int64_t row, const TopTokens& all, std::byte* workspace) = 0;
  // From the logits of the dense head, masked and adjusted.
  virtual void FromLogits(int64_t row, std::span<const float> logits, const RowMemory& memory,
                          std::byte* workspace) = 0;
  virtual void Fail(int64_t row, RowStatus status) = 0;
};

// question_bytes: the workspace that the question wants for a worker.
size_t CertifiedCallBytes(const CertifiedHead& head, int64_t rows, const Execution& execution,
                          size_t question_bytes);

// To be called before a size is computed from the number of rows.
void CheckHidden(const CertifiedHead& head, const MatrixView& hidden);

// Checks the rest of the input, then runs.
CertifiedStats RunCertifiedCall(const CertifiedHead& head, const CertifiedInput& input,
                                RowQuestion& question, std::span<CertifiedRow> rows,
                                const Execution& execution, size_t question_bytes);

}  // namespace sluice
