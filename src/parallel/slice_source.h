// A rank's view of its slice of sampled rows, whether it has their logits or a head that computes
// them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "semantics/draw/draw.h"
#include "semantics/row_status.h"
#include "support/rank_keys.h"

namespace sluice {

// Exchange 1, a row: this and the `candidates` first tokens of the slice. After the last: id -1.
struct RankReport {
  uint64_t fingerprint;
  uint32_t status;
  int32_t support;  // tokens of the slice that are not masked; no fewer where not all are listed

  const semantics::Token* tokens() const {
    return reinterpret_cast<const semantics::Token*>(this + 1);
  }
  semantics::Token* tokens() { return reinterpret_cast<semantics::Token*>(this + 1); }
};

inline size_t ReportBytes(int64_t candidates) {
  return sizeof(RankReport) + static_cast<size_t>(candidates) * sizeof(semantics::Token);
}

// The reports in a rank's message.
struct RankReports {
  RankReport& operator[](int64_t row) const {
    return *reinterpret_cast<RankReport*>(data +
                                          static_cast<size_t>(row) * ReportBytes(candidates));
  }

  std::byte* data = nullptr;
  int64_t candidates = 0;
};

// A slice of a row that is drawn from everything, without its logits.
struct SliceDraw {
  std::vector<semantics::Token> contenders;  // all that may win, whatever the row's maximum is
  int32_t count = 0;                         // of tokens that are not masked
  int32_t ties = 0;                          // that equal `lowest`
  float lowest = semantics::Infinity();
};

// Its const functions are called for several rows concurrently.
class SliceSource {
 public:
  virtual ~SliceSource() = default;

  // How many of the first tokens are listed of a row, up to `candidates`; equal on all ranks.
  virtual int64_t ListSize(int64_t row) const = 0;
  // Fills all but the fingerprints, which are already set. Tokens have global ids.
  virtual void List(const RankReports& reports) = 0;
  // Null: Part has more.
  virtual const SliceDraw* Draw(int64_t row) const = 0;
  // To be called before Part for these rows, in ascending order.
  virtual void Open(std::span<const int64_t> rows) = 0;
  virtual semantics::Row Part(int64_t row) const = 0;
};

inline void PutTokens(std::span<const semantics::Token> tokens, int32_t first_id,
                      int64_t candidates, RankReport& report) {
  semantics::Token* const to = report.tokens();
  std::fill_n(to, candidates, semantics::Token{0.0f, -1});
  for (size_t i = 0; i < tokens.size(); ++i) to[i] = {tokens[i].x, first_id + tokens[i].id};
}

// From logits. list: memory.
inline void ListSlice(const semantics::Row& part, int32_t first_id, int64_t wanted,
                      int64_t candidates, std::vector<uint64_t>& list, RankReport& report) {
  const semantics::RowScan scan = semantics::ScanRow(part);
  report.status = static_cast<uint32_t>(scan.status);
  report.support = static_cast<int32_t>(scan.support);
  PutTokens({}, first_id, candidates, report);
  if (scan.status != RowStatus::kOk) return;
  list.clear();
  for (int64_t i = 0; i < part.size; ++i) {
    if (part[i] != -semantics::Infinity()) {
      list.push_back(RankKey({part[i], static_cast<int32_t>(i)}));
    }
  }
  const int64_t listed = std::min<int64_t>(wanted, std::ssize(list));
  std::nth_element(list.begin(), list.begin() + listed, list.end());
  std::sort(list.begin(), list.begin() + listed);
  for (int64_t i = 0; i < listed; ++i) {
    const int32_t local = IdOfRankKey(list[static_cast<size_t>(i)]);
    report.tokens()[i] = {part[local], first_id + local};
  }
}

}  // namespace sluice
