// The kept tokens of a Cut as lists, by id or by rank, with their weights.
#include <algorithm>
#include <bit>
#include <cstring>

#include "select/select_table.h"
#include "semantics/temperature.h"
#include "support/rank_keys.h"
#include "support/rows.h"

#if defined(SLUICE_SELECT_CPU_COLLECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_COLLECT_INL_H_
#undef SLUICE_SELECT_CPU_COLLECT_INL_H_
#else
#define SLUICE_SELECT_CPU_COLLECT_INL_H_
#endif

#include "select/cpu/select_row-inl.h"
#include "support/compress-inl.h"
#include "support/cut_blocks-inl.h"
#include "support/row_status-inl.h"
#include "support/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Values and ids of the kept tokens, by id. The lists have room for the row and two vectors more.
template <class Read>
size_t CollectKept(const semantics::Row& row, const Cut& cut, float* xs, int32_t* ids) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const size_t size = static_cast<size_t>(row.size);
  CutBlocks<Read> blocks(row, cut);
  size_t count = 0;
  for (size_t i = 0; i < size; i += kBlock) {
    uint64_t kept = blocks.At(i);
    if (kept == 0) continue;
    if (i + kBlock > size || std::popcount(kept) <= 4) {
      for (; kept != 0; kept &= kept - 1, ++count) {
        const size_t at = i + static_cast<size_t>(std::countr_zero(kept));
        xs[count] = Read::One(row.data, at);
        ids[count] = static_cast<int32_t>(at);
      }
      continue;
    }
    for (size_t v = 0; v * hn::Lanes(d) < kBlock; ++v) {
      const size_t first = i + v * hn::Lanes(d);
      const uint64_t lanes = kept >> (v * hn::Lanes(d)) & ((uint64_t{1} << hn::Lanes(d)) - 1);
      CompressTo(di, hn::Iota(di, static_cast<int32_t>(first)), lanes, ids + count);
      count += CompressTo(d, Read::At(row.data, first), lanes, xs + count);
    }
  }
  return count;
}

// xs may be read up to a whole vector past its end.
inline void StoreWeights(const float* xs, size_t size, float max, float scale, uint64_t* weights) {
  const F32 d;
  HWY_ALIGN float block[HWY_MAX_BYTES / sizeof(float)];
  for (size_t i = 0; i < size; i += hn::Lanes(d)) {
    hn::Store(Weigher(max, scale)(hn::LoadU(d, xs + i)), d, block);
    const size_t count = std::min(hn::Lanes(d), size - i);
    for (size_t lane = 0; lane < count; ++lane) {
      weights[i + lane] = static_cast<uint64_t>(static_cast<int64_t>(block[lane]));
    }
  }
}

template <class Read>
void CollectRow(const semantics::Row& row, const Cut& cut, CandidateOrder order, float scale,
                const Candidates& candidates, size_t first, std::byte* workspace) {
  const RowMemory memory = RowMemory::In(workspace, row.size);
  float* xs = memory.list.x;
  int32_t* ids = memory.list.ids;
  const size_t kept = CollectKept<Read>(row, cut, xs, ids);
  if (order == CandidateOrder::kByRank) {
    uint64_t* keys = reinterpret_cast<uint64_t*>(memory.scratch_x);
    for (size_t i = 0; i < kept; ++i) keys[i] = RankKey({xs[i], ids[i]});
    // What lies in xs and ids is in the keys as well, but for the sign of a zero.
    const uint64_t* sorted = SortRankKeys(keys, reinterpret_cast<uint64_t*>(xs), kept);
    if (sorted != keys) std::memcpy(keys, sorted, kept * sizeof(uint64_t));
    for (size_t i = 0; i < kept; ++i) {
      ids[i] = IdOfRankKey(keys[i]);
      xs[i] = Read::One(row.data, static_cast<size_t>(ids[i]));
    }
  }

  // A Cut of another row may keep more or fewer tokens than it says: the first ones are written,
  // and the missing ones are written as empty.
  const size_t count = static_cast<size_t>(cut.count);
  const size_t written = std::min(count, kept);
  if (!candidates.ids.empty()) {
    int32_t* to = candidates.ids.data() + first;
    std::fill(std::copy(ids, ids + written, to), to + count, -1);
  }
  if (!candidates.logits.empty()) {
    float* to = candidates.logits.data() + first;
    std::fill(std::copy(xs, xs + written, to), to + count, -semantics::Infinity());
  }
  if (!candidates.weights.empty()) {
    uint64_t* to = candidates.weights.data() + first;
    const semantics::StatusAndMax found = ExamineRow<Read>(row);
    const size_t weighed = found.status == RowStatus::kOk ? written : 0;
    StoreWeights(xs, weighed, found.max, scale, to);
    std::fill(to + weighed, to + count, uint64_t{0});
  }
}

inline void CollectRows(const SelectInput& input, std::span<const Cut> cuts, CandidateOrder order,
                        const Candidates& candidates, const Execution& execution) {
  const size_t bytes = RowMemory::Bytes(input.logits.vocab);
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) HWY_ATTR {
    const Cut& cut = cuts[static_cast<size_t>(r)];
    if (cut.status != RowStatus::kOk) return;
    const semantics::Row row{input.logits.Row(r), input.logits.dtype, input.logits.vocab};
    const float scale = semantics::ScalesOf(PerRow(input.params, r)).draw;
    const size_t first = static_cast<size_t>(candidates.offsets[static_cast<size_t>(r)]);
    std::byte* workspace = WorkerWorkspace(execution, bytes, worker);
    WithReader(row.dtype, [&](auto read) HWY_ATTR {
      CollectRow<decltype(read)>(row, cut, order, scale, candidates, first, workspace);
    });
  });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
