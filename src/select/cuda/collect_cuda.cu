// Collect, and the running sum of the Cuts' counts.
#include "cuda/row_by_definition.cuh"
#include "select/cuda/collect.cuh"
#include "select/cuda/collect_sorted.cuh"
#include "semantics/temperature.h"
#include "semantics/weight.h"
#include "sluice/cuda/candidates.hpp"

namespace sluice::cuda {
namespace {

struct CollectArgument {
  RowsArgument rows;
  const Cut* cuts;
  CandidateOrder order;
  const int64_t* offsets;
  int64_t size;  // of the outputs
  int32_t* ids;  // null: not requested, and so on
  float* logits;
  uint64_t* weights;
};

// Where the tokens of one row go.
class RowOutput {
 public:
  __device__ RowOutput(const CollectArgument& argument, int row)
      : argument_(argument),
        first_(max(argument.offsets[row], int64_t{0})),
        room_(max(min(argument.offsets[row + 1], argument.size) - first_, int64_t{0})),
        tokens_(max(min(int64_t{argument.cuts[row].count}, room_), int64_t{0})) {}

  __device__ int64_t room() const { return room_; }
  // At most as many as the Cut says, even if it is another row's and keeps more.
  __device__ int64_t tokens() const { return tokens_; }

  __device__ void Put(int64_t place, int32_t id, float x, uint64_t weight) const {
    const int64_t to = first_ + place;
    if (argument_.ids != nullptr) argument_.ids[to] = id;
    if (argument_.logits != nullptr) argument_.logits[to] = x;
    if (argument_.weights != nullptr) argument_.weights[to] = weight;
  }

  // Everything from a place on.
  __device__ void PutNothing(const Team& team, int64_t place) const {
    const int step = team.threads() * team.blocks();
    for (place += team.rank() * team.threads() + team.thread(); place < room_; place += step) {
      Put(place, -1, -INFINITY, 0);
    }
  }

 private:
  const CollectArgument& argument_;
  int64_t first_;
  int64_t room_;
  int64_t tokens_;
};

// In dynamic shared memory.
struct CollectShared {
  TeamMemory team;
  CollectMemory collect;
  SortedMemory sorted;
};

struct Weigher {
  bool has_weights;  // a row with a status has none
  float max;
  float scale;

  __device__ uint64_t operator()(float x) const {
    return has_weights ? semantics::Weight(x, max, scale) : 0;
  }
};

template <DType kDType, bool kPatched>
__global__ void __launch_bounds__(kMostThreads)
    CollectKernel(const __grid_constant__ CollectArgument argument) {
  extern __shared__ __align__(16) unsigned char shared[];
  CollectShared& memory = *reinterpret_cast<CollectShared*>(shared);
  const Team team(memory.team);
  const TeamRow<kDType, kPatched> row(team, argument.rows, TeamIndex(team));
  const Cut cut = argument.cuts[row.index];
  const RowOutput output(argument, row.index);
  if (output.room() == 0) return;
  if (cut.status != RowStatus::kOk) {
    output.PutNothing(team, 0);
    return;
  }
  const IdOrderedSlice<kDType, kPatched> stretch(team, row.data, argument.rows.vocab,
                                                 PatchIf<kPatched>(argument.rows, row.index));
  const TieRules rules(cut);
  const KeptCount count = CountKept(team, memory.collect, stretch, rules);
  const Weigher weigher{count.row.status == RowStatus::kOk, count.row.max,
                        semantics::ScalesOf(row.params).draw};
  output.PutNothing(team, min(count.kept, output.tokens()));
  auto put = [&](int64_t place, int id, float x) { output.Put(place, id, x, weigher(x)); };
  if (argument.order == CandidateOrder::kById) {
    ForEachKept(stretch, rules, count, [&](float x, int id, int64_t place) {
      if (place < output.tokens()) put(place, id, x);
    });
  } else if (count.kept > kMostSorted) {
    const CutIds ids = ResolveTies(team, memory.sorted.find, row.slice, cut);
    PutInParts(team, memory.sorted, row.slice, ids, count.kept, output.tokens(), put);
  } else {
    uint64_t* keys = team.Of(0, memory.sorted.keys);
    ForEachKept(stretch, rules, count,
                [&](float x, int id, int64_t place) { keys[place] = KeyOfToken(x, id); });
    team.Sync();
    if (team.rank() == 0) {
      PutSorted(team.Block(), memory.sorted, row.slice, 0, output.tokens(),
                static_cast<int>(count.kept), put);
    }
  }
}

struct OffsetsArgument {
  const Cut* cuts;
  int64_t rows;
  int64_t capacity;
  int64_t* offsets;
};

__global__ void __launch_bounds__(kMostThreads)
    OffsetsKernel(const __grid_constant__ OffsetsArgument argument) {
  __shared__ TeamMemory memory;
  const Team team(memory);
  uint64_t sum = 0;
#pragma unroll 1
  for (int64_t first = 0; first < argument.rows; first += team.threads()) {
    const int64_t row = first + team.thread();
    uint64_t count = 0;
    if (row < argument.rows && argument.cuts[row].status == RowStatus::kOk) {
      const int64_t kept = max(int64_t{argument.cuts[row].count}, int64_t{0});
      count = static_cast<uint64_t>(min(kept, argument.capacity));
    }
    const uint64_t before = sum + team.SumBefore(count);
    if (row < argument.rows) argument.offsets[row] = static_cast<int64_t>(before);
    sum += team.SumOfBlock(count);
  }
  if (team.IsFirstThread()) argument.offsets[argument.rows] = static_cast<int64_t>(sum);
}

// The size that the outputs have; 0 without outputs.
int64_t SizeOfOutputs(const Candidates& candidates) {
  int64_t size = 0;
  auto check = [&size](std::string_view name, const auto& array) {
    if (array.size == 0) return;
    if (size != 0) CheckSize(name, static_cast<size_t>(array.size), size);
    if (array.data == nullptr) {
      ThrowInvalid(MemberName(name, "data"), "null", "a pointer to device memory");
    }
    size = array.size;
  };
  check("candidates.ids", candidates.ids);
  check("candidates.logits", candidates.logits);
  check("candidates.weights", candidates.weights);
  return size;
}

template <typename T>
T* DataOrNull(const DeviceArray<T>& array) {
  return array.size == 0 ? nullptr : array.data;
}

}  // namespace

void CandidateOffsets(DeviceArray<const Cut> cuts, int64_t capacity, DeviceArray<int64_t> offsets,
                      void* stream) {
  CheckInRange("capacity", capacity, 0, kMaxVocab);
  CheckOneARow("cuts", cuts, cuts.size);
  CheckOneARow("offsets", offsets, cuts.size + 1);
  OffsetsArgument argument{cuts.data, cuts.size, capacity, offsets.data};
  LaunchOverRows({reinterpret_cast<const void*>(OffsetsKernel), {1, kMostThreads}, 0}, 1, &argument,
                 stream);
}

void Collect(const LogitsView& logits, const RowParams& params, DeviceArray<const Cut> cuts,
             CandidateOrder order, const Candidates& candidates, void* stream) {
  CheckRows(logits);
  CheckRowParams(params, logits.rows, false);
  CheckOneARow("cuts", cuts, logits.rows);
  CheckInRange("order", static_cast<int64_t>(order), 0, 1);
  CheckOneARow("candidates.offsets", candidates.offsets, logits.rows + 1);
  const int64_t size = SizeOfOutputs(candidates);
  if (size == 0) return;
  CollectArgument argument{.rows = ArgumentOf(logits, params),
                           .cuts = cuts.data,
                           .order = order,
                           .offsets = candidates.offsets.data,
                           .size = size,
                           .ids = DataOrNull(candidates.ids),
                           .logits = DataOrNull(candidates.logits),
                           .weights = DataOrNull(candidates.weights)};
  const void* kernel =
      argument.rows.patches != nullptr
          ? ForDType(logits.dtype, CollectKernel<DType::kF32, true>,
                     CollectKernel<DType::kBf16, true>, CollectKernel<DType::kF16, true>)
          : ForDType(logits.dtype, CollectKernel<DType::kF32, false>,
                     CollectKernel<DType::kBf16, false>, CollectKernel<DType::kF16, false>);
  LaunchOverRows({kernel, ShapeForRows(logits.rows), sizeof(CollectShared)}, logits.rows, &argument,
                 stream);
}

}  // namespace sluice::cuda
