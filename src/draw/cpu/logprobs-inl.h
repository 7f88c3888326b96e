// Log-probabilities with vectors: rank, maximum and mass in two passes, and lists from few parts of
// the row.
//
// The row is divided into parts. The first pass notes the largest listed value of each, so the n-th
// largest of those is a value that at least n tokens reach, and whatever reaches it lies in a part
// with a maximum that does: on a model's row some n parts are read again.
#include <algorithm>
#include <bit>
#include <functional>

#include "draw/draw_table.h"
#include "draw/mode_value.h"
#include "support/rank_keys.h"
#include "support/rows.h"

#if defined(SLUICE_DRAW_CPU_LOGPROBS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_LOGPROBS_INL_H_
#undef SLUICE_DRAW_CPU_LOGPROBS_INL_H_
#else
#define SLUICE_DRAW_CPU_LOGPROBS_INL_H_
#endif

#include "draw/cpu/cdf-inl.h"
#include "support/row_status-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// A worker's memory: 8 bytes a token, as the definition has it. There are at most size / 64 parts
// when any are used, and then at most half of the row's tokens are candidates.
struct ListMemory {
  float* maxima;    // of the parts
  float* by_size;   // the maxima, to be sorted
  TieCounts* ties;  // at the parts' beginnings
  uint64_t* keys;   // of candidates

  ListMemory(std::byte* memory, size_t parts) {
    ties = reinterpret_cast<TieCounts*>(memory);
    maxima = reinterpret_cast<float*>(ties + parts);
    by_size = maxima + parts;
    keys = reinterpret_cast<uint64_t*>(by_size + parts);
  }
};

// The tokens that a mode reads: the whole row (-inf included when it ranks), or what a Cut keeps.
template <class Read>
class ListedRow {
 public:
  // part: elements of a part, a multiple of the block.
  ListedRow(const semantics::Row& row, const Cut& cut, bool is_whole, size_t part,
            const ListMemory& memory)
      : row_(row),
        size_(static_cast<size_t>(row.size)),
        blocks_(row, cut),
        is_whole_(is_whole),
        part_(part),
        memory_(memory) {}

  bool has_nan() const { return has_nan_; }
  float max() const { return max_; }

  // Notes the parts' maxima and counts the tokens from `sampled` on.
  int32_t Rank(float sampled) {
    int32_t rank = 0;
    for (size_t part = 0; part * part_ < size_; ++part) {
      memory_.ties[part] = blocks_.ties();
      float max = -semantics::Infinity();
      const size_t begin = part * part_, end = std::min(begin + part_, size_);
      rank += is_whole_ ? WholePart(begin, end, sampled, max) : KeptPart(begin, end, sampled, max);
      memory_.maxima[part] = max;
      max_ = std::max(max_, max);
    }
    return rank;
  }

  // The first `wanted` tokens of the total order, or all when there are fewer, as ascending keys.
  size_t First(size_t wanted) {
    const size_t parts = (size_ + part_ - 1) / part_;
    float least = -semantics::Infinity();
    if (wanted <= parts) {
      std::copy(memory_.maxima, memory_.maxima + parts, memory_.by_size);
      std::nth_element(memory_.by_size, memory_.by_size + (wanted - 1), memory_.by_size + parts,
                       std::greater<float>());
      least = memory_.by_size[wanted - 1];
    }
    // The first of the tokens equal to `least` are enough; masked ones are not listed.
    size_t ties_left = least == -semantics::Infinity() ? 0 : wanted;
    size_t count = 0;
    for (size_t part = 0; part < parts; ++part) {
      const float max = memory_.maxima[part];
      if (ties_left > 0 ? max < least : !(max > least)) continue;
      blocks_.set_ties(memory_.ties[part]);
      const size_t begin = part * part_, end = std::min(begin + part_, size_);
      for (size_t i = begin; i < end; i += kBlock) {
        for (uint64_t bits = From(i, least); bits != 0; bits &= bits - 1) {
          const size_t at = i + static_cast<size_t>(std::countr_zero(bits));
          const float x = Read::One(row_.data, at);
          if (x == least) {
            if (ties_left == 0) continue;
            --ties_left;
          }
          memory_.keys[count++] = RankKey({x, static_cast<int32_t>(at)});
        }
      }
    }
    const size_t listed = std::min(count, wanted);
    std::nth_element(memory_.keys, memory_.keys + listed, memory_.keys + count);
    std::sort(memory_.keys, memory_.keys + listed);
    return listed;
  }

 private:
  // The listed elements of a block from `least` on.
  uint64_t From(size_t i, float least) {
    const F32 d;
    uint64_t bits = is_whole_ ? kWholeBlock : blocks_.At(i);
    if (bits == 0) return 0;
    uint64_t reached = 0;
    if (i + kBlock <= size_) {
      for (size_t v = 0; v < kBlock; v += hn::Lanes(d)) {
        reached |= BitsOfMask(hn::Ge(Read::At(row_.data, i + v), hn::Set(d, least))) << v;
      }
    } else {
      for (size_t j = 0; i + j < size_; ++j) {
        reached |= uint64_t{Read::One(row_.data, i + j) >= least} << j;
      }
    }
    return bits & reached;
  }

  int32_t WholePart(size_t begin, size_t end, float sampled, float& max) {
    const F32 d;
    const auto least = hn::Set(d, sampled);
    auto largest = hn::Set(d, max);
    auto nan = hn::IsNaN(largest);
    int32_t rank = 0;
    size_t i = begin;
    for (; i + kBlock <= end; i += kBlock) {
      auto any = hn::IsNaN(least);
      for (size_t v = 0; v < kBlock; v += hn::Lanes(d)) {
        const auto x = Read::At(row_.data, i + v);
        largest = hn::Max(largest, x);
        nan = hn::Or(nan, hn::IsNaN(x));
        any = hn::Or(any, hn::Ge(x, least));
      }
      if (hn::AllFalse(d, any)) continue;
      for (size_t v = 0; v < kBlock; v += hn::Lanes(d)) {
        rank += static_cast<int32_t>(hn::CountTrue(d, hn::Ge(Read::At(row_.data, i + v), least)));
      }
    }
    has_nan_ = has_nan_ || !hn::AllFalse(d, nan);
    max = hn::GetLane(hn::MaxOfLanes(d, largest));
    for (; i < end; ++i) {
      const float x = Read::One(row_.data, i);
      has_nan_ = has_nan_ || semantics::IsNan(x);
      rank += x >= sampled ? 1 : 0;
      max = x > max ? x : max;
    }
    return rank;
  }

  int32_t KeptPart(size_t begin, size_t end, float sampled, float& max) {
    int32_t rank = 0;
    for (size_t i = begin; i < end; i += kBlock) {
      const uint64_t kept = blocks_.At(i);
      if (kept == 0) continue;
      if (i + kBlock > end || std::popcount(kept) <= 4) {
        for (uint64_t bits = kept; bits != 0; bits &= bits - 1) {
          const float x = Read::One(row_.data, i + static_cast<size_t>(std::countr_zero(bits)));
          rank += x >= sampled ? 1 : 0;
          max = x > max ? x : max;
        }
        continue;
      }
      const F32 d;
      auto largest = hn::Set(d, max);
      for (size_t v = 0; v * hn::Lanes(d) < kBlock; ++v) {
        const auto x = Read::At(row_.data, i + v * hn::Lanes(d));
        const auto mask = MaskOfBits(d, kept, v);
        const auto ranked = hn::And(mask, hn::Ge(x, hn::Set(d, sampled)));
        rank += static_cast<int32_t>(hn::CountTrue(d, ranked));
        largest = hn::Max(largest, hn::IfThenElse(mask, x, largest));
      }
      max = hn::GetLane(hn::MaxOfLanes(d, largest));
    }
    return rank;
  }

  semantics::Row row_;
  size_t size_;
  CutBlocks<Read> blocks_;
  bool is_whole_;
  size_t part_;
  ListMemory memory_;
  bool has_nan_ = false;  // of a whole row
  float max_ = -semantics::Infinity();
};

// Parts of which a list of this length needs no more than half. 0: the row is too short.
inline size_t PartFor(int64_t vocab, int64_t listed) {
  for (const size_t part : {size_t{512}, size_t{64}}) {
    if (2 * listed * static_cast<int64_t>(part) <= vocab) return part;
  }
  return 0;
}

// False when the row is one for the definition.
template <class Read>
bool LogprobsOfRow(const LogprobInput& input, const semantics::Row& row, const SelectParams& params,
                   TokenResult& result, const RowList& list, std::byte* workspace) {
  const bool is_processed = IsProcessed(input.mode);
  const bool is_whole = !is_processed || semantics::IsGreedy(params);
  const Cut cut = semantics::ProcessedCut(result.cut, params);
  const size_t size = static_cast<size_t>(row.size);
  // Without parts every listed token is a candidate, and all memory is for keys.
  const size_t chosen = PartFor(row.size, list.width - 1);
  const size_t part = chosen == 0 ? (size + kBlock - 1) / kBlock * kBlock : chosen;
  TieCounts one_ties;
  float one_max = 0.0f, one_copy = 0.0f;
  ListMemory memory(workspace, chosen == 0 ? 0 : (size + part - 1) / part);
  if (chosen == 0) {
    memory.ties = &one_ties;
    memory.maxima = &one_max;
    memory.by_size = &one_copy;
  }
  ListedRow<Read> listed(row, cut, is_whole, part, memory);

  const float sampled = Read::One(row.data, static_cast<size_t>(result.id));
  const int32_t rank = listed.Rank(sampled);
  if (is_whole && listed.has_nan()) return false;
  if (is_whole && is_processed && sampled == -semantics::Infinity()) return false;

  ModeValue value{input.mode, params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
  if (NeedsMass(input.mode)) {
    const semantics::StatusAndMax found =
        is_whole ? StatusOfMax<Read>(row, listed.max()) : ExamineRow<Read>(row);
    if (found.status == RowStatus::kOk) {
      const float temperature =
          is_whole ? 1.0f : semantics::EffectiveTemperature(params.temperature);
      const float scale = semantics::TemperatureScale(temperature);
      const uint64_t mass = is_whole ? KeptWeights<Read>(row, found.max, scale).OfAll()
                                     : KeptMass<Read>(row, cut, found.max, scale);
      value.normalizer = semantics::NormalizerOf(found.max, temperature, mass);
    }
  }
  result.rank = rank;
  result.logprob = value(sampled);
  if (list.width == 0) return true;

  list.ids[0] = result.id;
  list.values[0] = result.logprob;
  const size_t wanted = static_cast<size_t>(list.width) - 1;
  const size_t count = wanted == 0 ? 0 : listed.First(wanted);
  for (size_t n = 0; n < wanted; ++n) {
    if (n < count) {
      list.ids[n + 1] = IdOfRankKey(memory.keys[n]);
      list.values[n + 1] = value(Read::One(row.data, static_cast<size_t>(list.ids[n + 1])));
    } else {
      list.ids[n + 1] = -1;
      list.values[n + 1] = -semantics::Infinity();
    }
  }
  return true;
}

inline void LogprobsOfRows(const LogprobInput& input, std::span<TokenResult> results,
                           const LogprobLists& lists, const Execution& execution) {
  const size_t bytes = static_cast<size_t>(input.logits.vocab) * sizeof(semantics::Token);
  ForEachRow(execution.parallel, input.logits.rows, [&](int64_t r, int worker) HWY_ATTR {
    TokenResult& result = results[static_cast<size_t>(r)];
    const RowList list = ListOf(lists, r);
    if (result.status != RowStatus::kOk || result.id < 0) return ReportNothing(result, list);
    const semantics::Row row{input.logits.Row(r), input.logits.dtype, input.logits.vocab};
    const SelectParams& params = PerRow(input.params, r);
    std::byte* workspace = WorkerWorkspace(execution, bytes, worker);
    const bool is_done = WithReader(row.dtype, [&](auto read) HWY_ATTR {
      return LogprobsOfRow<decltype(read)>(input, row, params, result, list, workspace);
    });
    if (is_done) return;
    LogitsView one = input.logits;  // with a NaN among its values
    one.data = row.data;
    one.rows = 1;
    const size_t width = static_cast<size_t>(list.width);
    LogprobsByDefinition({one, input.mode, {&params, 1}}, {&result, 1},
                         {list.width, {list.ids, width}, {list.values, width}},
                         {execution.backend, {}, {workspace, bytes}});
  });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
