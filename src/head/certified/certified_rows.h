// The hidden states of one call on their way through a certified head. The caller has a use for
// each row and drives them, in this order; rows of one step may be taken concurrently.
//
//   Plan          what the row needs, and what changes its logits
//   Score         scores of all rows that need them, from one read of the planes
//   Certificate   what the scores of a row decide, to be pulled; Close: whether that was enough
//   ProjectRest   the dense head, for the rows that are left
//   Logits        of one of these, masked and adjusted
//   Finish        what became of the rows
#pragma once

#include <optional>
#include <span>

#include "head/certified/row_certificate.h"
#include "sluice/certified_head.hpp"

namespace sluice {

// Before a size is computed from the number of rows.
void CheckHidden(const CertifiedHead& head, const MatrixView& hidden);

class CertifiedRows {
 public:
  // The workspace; memory_bytes: what the caller uses of it for each worker.
  static size_t Bytes(const CertifiedHead& head, int64_t rows, const Execution& execution,
                      size_t memory_bytes);

  // Checks all of the input but its hidden states. results: empty, or one a row, for Finish.
  CertifiedRows(const CertifiedHead& head, const CertifiedInput& input,
                std::span<CertifiedRow> results, const Execution& execution, size_t memory_bytes);
  CertifiedRows(const CertifiedRows&) = delete;

  int64_t size() const { return rows_; }

  enum class Need : uint8_t {
    kNothing,  // of a row without a plan
    kPlanes,   // some tokens, which the planes may decide
    kDense,    // all logits
  };
  // adjust: what changes the row's logits, but for the bitmask of the input; null: nothing. Its
  // lists must stay as they are, and those of the bias ascend by id. The status is kNanInput where
  // the hidden state decides it: then the row needs nothing.
  RowStatus Plan(int64_t row, Need need, const semantics::AdjustInput* adjust = nullptr);

  void Score();

  // None: the row needs nothing, or all logits. A certificate with a status other than kOk must not
  // be pulled from.
  std::optional<RowCertificate> Certificate(int64_t row, int worker);
  // open: why the certificate does not decide the row; kNone: it does.
  void Close(int64_t row, const RowCertificate& certificate, DenseReason open);

  // How many rows are left, in the order of rows.
  int64_t ProjectRest();
  struct DenseRow {
    int64_t row;
    std::span<const float> logits;
  };
  DenseRow Logits(int64_t i) const;  // once

  CertifiedStats Finish() const;

  // A token for each of the vocabulary, until the worker's next certificate.
  semantics::Token* Tokens(int worker) const;
  std::byte* Memory(int worker) const { return Worker(worker) + layout_.memory; }

 private:
  // How far a row has come.
  struct State {
    Need need;
    bool is_few;             // so few tokens are allowed that they are computed without scores
    const int32_t* bitmask;  // of all masks; null: none
    semantics::TokenAdjust adjust;
    DenseReason reason;
    HiddenState hidden;
    CertifiedRow result;
    int64_t refined;
  };
  // Where everything lies in the workspace: a part of the call, then a part of each worker.
  struct Layout {
    Layout(const PlaneView& planes, int64_t rows, size_t memory_bytes);

    int64_t width;  // of a row of scores
    int64_t mask_words;
    size_t groups, intervals, scored, scored_intervals, dense_rows, masks, call_bytes;
    size_t ids, refined, scores_before, memory, worker_bytes;
  };

  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(execution_.workspace.data() + offset);
  }
  std::byte* Worker(int worker) const {
    return execution_.workspace.data() + layout_.call_bytes +
           static_cast<size_t>(worker) * layout_.worker_bytes;
  }
  semantics::Row Hidden(int64_t row) const {
    return {input_.hidden.Row(row), input_.hidden.dtype, input_.hidden.columns};
  }
  Intervals IntervalsOf(int64_t row) const;
  RowMemory MemoryOf(int64_t row, int worker) const;
  void Adjust(int64_t row, semantics::AdjustInput adjust);
  void LeaveToDense(State& state, DenseReason reason) const;

  const PlaneView planes_;
  const HeadSource head_;
  const CertifiedInput& input_;
  const std::span<CertifiedRow> results_;
  const Execution& execution_;
  const Layout layout_;
  const int64_t rows_;
  State* const states_;
  size_t scored_ = 0;
};

}  // namespace sluice
