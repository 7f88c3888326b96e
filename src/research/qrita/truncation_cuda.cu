// Qrita (2026), its first kernel: one read of the row gathers the outliers, for top-p alone a
// second one sums the whole mass, and what the outliers certify is decided among them.
//
// The certificate: as many outliers as the rules look at, or the mass that top-p needs of the whole
// row, as exact integers.
#include "cuda/long_mass_sum.cuh"
#include "cuda/row_by_definition.cuh"
#include "cuda/sort_keys.cuh"
#include "research/qrita/pivot_find.cuh"
#include "research/qrita/qrita.h"
#include "research/qrita/truncation.cuh"
#include "select/cuda/row_rules.cuh"
#include "select/cuda/sorted_values.cuh"

namespace sluice::research {

using namespace cuda;

namespace {

// The outliers of a row that hold its Cut.
struct Outliers {
  const float* values;
  int count;
  float max;
  uint64_t whole_mass;  // 0: they are all that top-p is measured on

  __device__ semantics::RowScan Scan(int vocab) const { return {RowStatus::kOk, max, vocab}; }
};

// As many of the first block's threads as are worth their barriers.
__device__ inline FirstThreads ThreadsFor(const Team& team, int count, int values_a_thread) {
  int threads = kWarpSize;
  while (2 * threads <= team.threads() && 2 * threads * values_a_thread <= count) threads *= 2;
  return team.Block().FirstThreads(threads);
}

template <int kPivots, bool kTracksTies>
struct SearchTile {
  PivotMemory<kPivots, kTracksTies> pivots;
  float values[kMostOutliers];

  static __device__ bool Takes(const SelectParams&) { return true; }

  template <DType kDType>
  __device__ Cut Select(const Team& team, const TeamRow<kDType>& row, const Outliers& outliers,
                        int vocab) {
    const FirstThreads first = ThreadsFor(team, outliers.count, 2);
    if (team.rank() > 0 || first.thread() >= first.threads()) return {};
    for (int i = first.thread(); i < outliers.count; i += first.threads()) {
      values[i] = outliers.values[i];
    }
    first.SyncBlock();
    const ListedValues listed(first, values, outliers.count);
    RowRules rules(first, pivots, listed, outliers.Scan(vocab), row.params, row.key,
                   outliers.whole_mass);
    return rules.Select(nullptr);
  }
};

struct SearchInPlace {
  PivotMemory<3, true> pivots;

  static __device__ bool Takes(const SelectParams&) { return true; }

  template <DType kDType>
  __device__ Cut Select(const Team& team, const TeamRow<kDType>& row, const Outliers& outliers,
                        int vocab) {
    const ListedValues listed(team, outliers.values, outliers.count);
    RowRules rules(team, pivots, listed, outliers.Scan(vocab), row.params, row.key,
                   outliers.whole_mass);
    return rules.Select(nullptr);
  }
};

struct SortTile {
  uint32_t keys[kMostOutliers];

  static __device__ bool Takes(const SelectParams& params) {
    return IsWithin(semantics::RulesOf(params), kRulesOfSortedValues);
  }

  template <DType kDType>
  __device__ Cut Select(const Team& team, const TeamRow<kDType>& row, const Outliers& outliers,
                        int) {
    const FirstThreads first = ThreadsFor(team, outliers.count, 1);
    if (team.rank() > 0 || first.thread() >= first.threads()) return {};
    for (int i = first.thread(); i < outliers.count; i += first.threads()) {
      keys[i] = semantics::OrderKey(outliers.values[i]);
    }
    first.SyncBlock();
    SortDescending(first, keys, outliers.count);
    return SortedValues(first, keys, outliers.count).Select(row.params, outliers.whole_mass);
  }
};

// In dynamic shared memory.
template <class Finish>
struct TruncationMemory {
  TeamMemory team;
  GatherMemory gather;
  Finish finish;
};

// Whether the outliers have the mass that top-p needs, of the whole row that is read for it.
template <DType kDType>
__device__ bool HaveMass(const Team& team, const VectorSlice<kDType>& slice,
                         const SelectParams& params, Outliers& outliers) {
  const float scale = semantics::ScalesOf(params).filter;
  LongMassSum all;
  ForEachValue(slice, [&](float x) { all.Add(MassSum::Of(x, outliers.max, scale)); });
  outliers.whole_mass = team.Sum(all.Total());
  uint64_t mine = 0;
  ListedValues(team, outliers.values, outliers.count).ForEach([&](float x, int) {
    mine += semantics::Weight(x, outliers.max, scale);
  });
  const uint64_t target = semantics::ExclusiveTarget(
      semantics::TargetMass(params.top_p, outliers.whole_mass), params.profile.top_p_boundary);
  return team.Sum(mine) >= target;
}

// The first thread has the Cut.
template <DType kDType, class Finish>
__device__ Cut SelectByTruncation(const Team& team, TruncationMemory<Finish>& memory,
                                  const TeamRow<kDType>& row, const VectorSlice<kDType>& slice,
                                  FirstVectors& loaded, const Truncation& truncation,
                                  const QritaArgument& argument) {
  if (team.thread() == 0) memory.gather = {0, 0};
  const Body body = BodyOf<kDType>(team, slice, loaded);
  const bool is_by_mass = truncation.certificate == Certificate::kMass;
  float* entry = nullptr;
  float learned = 0.0f;
  if (argument.table != nullptr && is_by_mass) {
    entry = EntryOf(*argument.table, row.params);
    // Other rows write it meanwhile, so one thread reads it for all.
    const float now = team.IsFirstThread() ? *static_cast<volatile float*>(entry) : 0.0f;
    learned = __uint_as_float(static_cast<uint32_t>(team.Max(__float_as_uint(now))));
  }

  float* values = argument.outliers + int64_t{row.index} * argument.room;
  const int vocab = argument.rows.vocab;
  bool is_hit = false;
  Outliers outliers{values, 0, 0.0f, 0};
  RowNote note{body.mean, body.deviation, 0.0f, 0};
  if (body.deviation > 0) {
    note.sigma = SigmaOf(truncation, row.params, body, vocab, argument.room, learned);
    const Gathered gathered =
        GatherOutliers(team, slice, loaded, memory.gather, body.ThresholdAt(note.sigma), values,
                       static_cast<uint32_t>(argument.room));
    note.gathered = gathered.count;
    is_hit = !gathered.is_spoilt && gathered.count > 0 &&
             gathered.count <= static_cast<uint32_t>(argument.room) &&
             gathered.count >= static_cast<uint32_t>(truncation.needed);
    outliers.count = static_cast<int>(gathered.count);
  }
  if (is_hit) {
    uint32_t max_key = 0;
    ListedValues(team, values, outliers.count).ForEach([&](float x, int) {
      max_key = max(max_key, semantics::OrderKey(x));
    });
    outliers.max = semantics::ValueOfKey(static_cast<uint32_t>(team.Max(max_key)));
    if (is_by_mass) is_hit = HaveMass(team, slice, row.params, outliers);
  }
  Cut cut;
  cut.count = kUndecided;
  if (is_hit && !argument.leaves_all) {
    cut = memory.finish.Select(team, row, outliers, vocab);
  }
  if (argument.table != nullptr && team.IsFirstThread()) {
    const bool is_decided = cut.count != kUndecided;
    atomicAdd(reinterpret_cast<unsigned long long*>(is_decided ? &argument.table->hits
                                                               : &argument.table->fallbacks),
              1ull);
    if (is_decided && is_by_mass) Learn(entry, note, argument.room, body.SigmaOf(cut.lower));
    if (!is_decided && is_by_mass) argument.notes[row.index] = note;
  }
  return cut;
}

template <DType kDType, class Finish>
__global__ void __launch_bounds__(kMostThreads)
    TruncationKernel(const __grid_constant__ QritaArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  auto& memory = *reinterpret_cast<TruncationMemory<Finish>*>(shared);
  const Team team(memory.team);
  const VectorSlice<kDType> slice(team, argument.rows, TeamIndex(team));
  const TeamRow<kDType> row(team, argument.rows, TeamIndex(team));
  FirstVectors loaded;
  slice.LoadFirst(loaded);  // on the way while the parameters come
  Cut cut;
  cut.count = kUndecided;
  if (team.IsFirstThread()) argument.notes[row.index] = {};
  if (row.HasValidParams(argument.rows.limits) && Finish::Takes(row.params)) {
    const Truncation truncation = TruncationOf(row.params, argument.rows.vocab);
    if (truncation.certificate != Certificate::kNone) {
      cut = SelectByTruncation(team, memory, row, slice, loaded, truncation, argument);
    }
  }
  if (team.IsFirstThread()) argument.cuts[row.index] = cut;
}

template <class Finish>
void LaunchWith(DType dtype, QritaArgument argument, void* stream) {
  LaunchOverRows(
      {ForDType(dtype, TruncationKernel<DType::kF32, Finish>,
                TruncationKernel<DType::kBf16, Finish>, TruncationKernel<DType::kF16, Finish>),
       ShapeForRows(argument.rows.rows), sizeof(TruncationMemory<Finish>)},
      argument.rows.rows, &argument, stream);
}

}  // namespace

void LaunchTruncation(QritaVariant variant, DType dtype, const QritaArgument& argument,
                      void* stream) {
  switch (variant) {
    case QritaVariant::kBinary:
      return LaunchWith<SearchTile<1, true>>(dtype, argument, stream);
    case QritaVariant::kNoDup:
      return LaunchWith<SearchTile<3, false>>(dtype, argument, stream);
    case QritaVariant::kSortFinish:
      return LaunchWith<SortTile>(dtype, argument, stream);
    case QritaVariant::kOneTile:
      return LaunchWith<SearchInPlace>(dtype, argument, stream);
    default:
      return LaunchWith<SearchTile<3, true>>(dtype, argument, stream);
  }
}

}  // namespace sluice::research
