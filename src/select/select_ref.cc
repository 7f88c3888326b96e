// Selection by the definition: sort the row, move the ends of the interval.
#include "select/select_table.h"
#include "semantics/select_row.h"
#include "support/rows.h"

namespace sluice {
namespace {

using semantics::Row;
using semantics::SelectedRow;
using semantics::Token;

Row RowOf(const LogitsView& logits, int64_t row) {
  return {logits.Row(row), logits.dtype, logits.vocab};
}

size_t WorkspaceBytesRef(int64_t vocab) { return static_cast<size_t>(vocab) * sizeof(Token); }

Token* TokensOf(const Execution& execution, const LogitsView& logits, int worker) {
  return reinterpret_cast<Token*>(
      WorkerWorkspace(execution, WorkspaceBytesRef(logits.vocab), worker));
}

SelectedSet SelectRowRef(const RowRequest& request, std::byte* workspace) {
  return SelectByDefinition(request, reinterpret_cast<Token*>(workspace));
}

void Store(void* row, DType dtype, int64_t i, uint32_t fp32_bits, uint16_t half_bits) {
  if (dtype == DType::kF32) {
    static_cast<uint32_t*>(row)[i] = fp32_bits;
  } else {
    static_cast<uint16_t*>(row)[i] = half_bits;
  }
}

}  // namespace

void MaskByDefinition(const MutableLogitsView& logits, std::span<const Cut> cuts,
                      const Execution& execution) {
  const uint16_t half_bits = logits.dtype == DType::kBf16 ? 0xff80 : 0xfc00;  // -inf
  ForEachRow(execution.parallel, logits.rows, [&](int64_t r, int) {
    const Cut& cut = cuts[static_cast<size_t>(r)];
    if (cut.status != RowStatus::kOk) return;
    const Row row = RowOf(logits, r);
    semantics::CutWalk walk(cut);
    for (int64_t i = 0; i < row.size; ++i) {
      if (!walk.Keeps(row[i])) Store(logits.Row(r), logits.dtype, i, 0xff800000u, half_bits);
    }
  });
}

void KeptBitmaskByDefinition(const LogitsView& logits, std::span<const Cut> cuts,
                             std::span<int32_t> bitmask, const Execution& execution) {
  const int64_t words = (logits.vocab + 31) / 32;
  ForEachRow(execution.parallel, logits.rows, [&](int64_t r, int) {
    int32_t* kept = bitmask.data() + r * words;
    for (int64_t w = 0; w < words; ++w) kept[w] = 0;
    const Cut& cut = cuts[static_cast<size_t>(r)];
    if (cut.status != RowStatus::kOk) return;
    const Row row = RowOf(logits, r);
    semantics::CutWalk walk(cut);
    for (int64_t i = 0; i < row.size; ++i) {
      if (walk.Keeps(row[i])) kept[i >> 5] |= static_cast<int32_t>(1u << (i & 31));
    }
  });
}

void CollectByDefinition(const SelectInput& input, std::span<const Cut> cuts, CandidateOrder order,
                         const Candidates& candidates, const Execution& execution) {
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) {
    const Cut& cut = cuts[static_cast<size_t>(r)];
    if (cut.status != RowStatus::kOk) return;
    const Row row = RowOf(input.logits, r);
    Token* kept = TokensOf(execution, input.logits, worker);
    int64_t count = 0;
    semantics::CutWalk walk(cut);
    for (int64_t i = 0; i < row.size; ++i) {
      const float x = row[i];
      if (walk.Keeps(x)) kept[count++] = {x, static_cast<int32_t>(i)};
    }
    if (order == CandidateOrder::kByRank) semantics::SortByOrder(kept, count);

    // A Cut of another row may keep fewer tokens than it says: the rest is written as empty.
    const semantics::RowScan scan = semantics::ScanRow(row);
    const float scale = semantics::ScalesOf(PerRow(input.params, r)).draw;
    const size_t first = static_cast<size_t>(candidates.offsets[static_cast<size_t>(r)]);
    for (int64_t i = 0; i < cut.count; ++i) {
      const Token token = i < count ? kept[i] : Token{-semantics::Infinity(), -1};
      const size_t to = first + static_cast<size_t>(i);
      if (!candidates.ids.empty()) candidates.ids[to] = token.id;
      if (!candidates.logits.empty()) candidates.logits[to] = token.x;
      if (!candidates.weights.empty()) {
        candidates.weights[to] = scan.status == RowStatus::kOk && i < count
                                     ? semantics::Weight(token.x, scan.max, scale)
                                     : 0;
      }
    }
  });
}

SelectedSet SelectByDefinition(const RowRequest& request, Token* workspace) {
  const SelectedRow row =
      semantics::SelectRow(request.row, request.params, request.key, request.limits, workspace);
  SelectedSet selected;
  selected.cut = row.ToCut();
  if (row.status != RowStatus::kOk) return selected;
  selected.max = row.sorted.Max();
  if (request.needs_masses) {
    selected.mass = semantics::MassesOf(row.sorted, request.params, row.trace);
  }
  return selected;
}

const SelectTable kSelectRef = {WorkspaceBytesRef, SelectRowRef, MaskByDefinition,
                                KeptBitmaskByDefinition, CollectByDefinition};

}  // namespace sluice
