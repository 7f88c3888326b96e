// Calls of a certified head, and the same from the dense head by the definition.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "semantics/adjust/mask.h"
#include "semantics/order.h"
#include "semantics/row_status.h"
#include "tests/head/intervals.h"
#include "tests/support/backends.h"
#include "tests/support/first_difference.h"

namespace sluice::test {

inline constexpr CertificateKind kCertificateKinds[] = {CertificateKind::kDither4,
                                                        CertificateKind::kStrict};

class AlignedBytes {
 public:
  explicit AlignedBytes(size_t size) : bytes_(size + kWorkspaceAlignment), size_(size) {}
  std::span<std::byte> span() {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    const size_t skip = (kWorkspaceAlignment - address % kWorkspaceAlignment) % kWorkspaceAlignment;
    return {bytes_.data() + skip, size_};
  }

 private:
  std::vector<std::byte> bytes_;
  size_t size_;
};

struct TopResult {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::vector<RowStatus> status;
  std::vector<CertifiedRow> rows;
  CertifiedStats stats;
};

inline TopResult RunTopK(const CertifiedHead& head, const CertifiedInput& input, int32_t k,
                         Execution execution) {
  const auto rows = static_cast<size_t>(input.hidden.rows);
  TopResult top;
  top.ids.resize(rows * static_cast<size_t>(k));
  top.logits.resize(top.ids.size());
  top.status.resize(rows);
  top.rows.resize(rows);
  AlignedBytes memory(head.TopKWorkspaceBytes(input.hidden.rows, execution));
  execution.workspace = memory.span();
  top.stats = head.TopK(input, {k, top.ids, top.logits, top.status}, top.rows, execution);
  return top;
}

// The logits of the dense head, masked tokens at -inf. Of any backend, which are all the same and
// not all slow.
inline std::vector<std::vector<float>> DenseLogits(const DenseHead& head,
                                                   const CertifiedInput& input) {
  const int64_t vocab = head.weight.rows;
  std::vector<float> all(static_cast<size_t>(input.hidden.rows * vocab));
  if (!all.empty()) {
    Project(head, input.hidden, {}, {all.data(), input.hidden.rows, vocab, vocab, DType::kF32, {}},
            {});
  }
  std::vector<std::vector<float>> rows;
  for (int64_t r = 0; r < input.hidden.rows; ++r) {
    rows.emplace_back(all.begin() + r * vocab, all.begin() + (r + 1) * vocab);
    if (input.bitmask.empty()) continue;
    semantics::ApplyBitmask(rows.back(), input.bitmask.data() + r * ((vocab + 31) / 32));
  }
  return rows;
}

inline TopResult DenseTopK(const DenseHead& head, const CertifiedInput& input, int32_t k) {
  TopResult top;
  for (const auto& logits : DenseLogits(head, input)) {
    top.status.push_back(
        semantics::ScanRow({logits.data(), DType::kF32, std::ssize(logits)}).status);
    std::vector<semantics::Token> tokens;
    for (size_t v = 0; top.status.back() == RowStatus::kOk && v < logits.size(); ++v) {
      if (logits[v] > -INFINITY) tokens.push_back({logits[v], static_cast<int32_t>(v)});
    }
    semantics::SortByOrder(tokens.data(), std::ssize(tokens));
    const float missing = top.status.back() == RowStatus::kOk ? -INFINITY : semantics::QuietNan();
    tokens.resize(static_cast<size_t>(k), {missing, -1});
    for (const semantics::Token& token : tokens) {
      top.ids.push_back(token.id);
      top.logits.push_back(token.x);
    }
  }
  return top;
}

}  // namespace sluice::test
