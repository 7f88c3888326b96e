// The head in clusters on a GPU: the rules of cluster_bound.h and cluster_certificate.h. A block
// has a hidden state's clusters and open rows to look at, a warp a centroid, or a row of weights.
//
// Rounding: products of centroids are sums in fp64, in an order of their own, as cluster_bound.h
// allows; a bound is then rounded up to fp32. Masses are sums in fp64, too, in an order that
// depends on the number of threads alone, and of what rounding makes of them the certificate knows.
#include <algorithm>

#include "backend/find.cuh"
#include "backend/sort_keys.cuh"
#include "backend/token_list.cuh"
#include "head/cluster_call.h"
#include "head/device_call.h"
#include "head/dot_lanes.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarpThreads = 128;      // of blocks whose warps work by themselves
constexpr int kBlocksOfProcessor = 8;  // of those
constexpr int kSortedNear = 4096;  // tokens; of more the memory of the device is the place to sort

// The next kernel may start when all before this one are over: it reads what they wrote by loads
// for memory that nobody writes.
__device__ void Begin() {
  AwaitKernelBefore();
  LetNextKernelStart();
}

__device__ ClusterPace PaceOf(const ClusterArgument& call, int row) {
  const ClusterPace pace = call.paces == nullptr ? ClusterPace{} : call.paces[row];
  return pace.rows > 0.0 ? pace : StartOf(call.budget, call.head.vocab);
}

__global__ void __launch_bounds__(kWarpThreads)
    PrepareKernel(const __grid_constant__ ClusterArgument call) {
  __shared__ TeamMemory shared;
  Begin();
  const Team team(shared);
  const int row = static_cast<int>(blockIdx.x);
  float* const state = call.memory.states + row * call.memory.state_stride;
  double squares = 0.0;
  bool is_finite = true;
  for (int j = team.thread(); j < call.head.dim; j += team.threads()) {
    const float h = semantics::Load(call.hidden, call.hidden_dtype, row * call.hidden_stride + j);
    state[j] = h;
    squares += static_cast<double>(h) * static_cast<double>(h);
    is_finite = is_finite && fabsf(h) < INFINITY;
  }
  squares = team.ReduceBlock(squares, Plus{});
  const int all_finite = __syncthreads_and(is_finite ? 1 : 0);
  if (team.thread() != 0) return;
  ClusterCourse course = {};
  course.norm = HiddenNormOf(squares);
  course.budget = RowsOfNext(PaceOf(call, row), call.budget, call.head.vocab);
  course.open_from = ~uint64_t{0};
  if (all_finite == 0) {
    course.is_done = true;
    course.answer.path = ClusterPath::kDense;
    course.answer.reason = ClusterReason::kHidden;
  }
  call.memory.courses[row] = course;
}

// A warp has the clusters of one centroid.
__global__ void __launch_bounds__(kWarpThreads)
    BoundKernel(const __grid_constant__ ClusterArgument call) {
  Begin();
  const int row = static_cast<int>(blockIdx.y);
  const HiddenNorm norm = call.memory.courses[row].norm;
  const float* const state = call.memory.states + row * call.memory.state_stride;
  float* const bounds = call.memory.bounds + int64_t{row} * call.clusters;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warps = static_cast<int>(gridDim.x) * (kWarpThreads / kWarpSize);
  int c = static_cast<int>(blockIdx.x * kWarpThreads + threadIdx.x) / kWarpSize;
#pragma unroll 1
  for (; c < call.clusters; c += warps) {
    const int centroid = call.shapes[c].centroid;
    if (c > 0 && call.shapes[c - 1].centroid == centroid) continue;  // another warp has them
    const float* const mean = call.centroids + int64_t{centroid} * call.head.dim;
    double product = 0.0;
#pragma unroll 8
    for (int j = lane; j < call.head.dim; j += kWarpSize) {
      product = __fma_rn(static_cast<double>(mean[j]), static_cast<double>(state[j]), product);
    }
    product = Team::ReduceWarp(product, Plus{});
    for (int i = c + lane; i < call.clusters && call.shapes[i].centroid == centroid;
         i += kWarpSize) {
      bounds[i] = __double2float_ru(
          ClusterBound(call.shapes[i], product, norm, call.gamma, call.is_cone, call.folds_bias));
    }
  }
}

struct StepArgument {
  ClusterArgument call;
  int round;  // those that are over
};

struct StepMemory {
  TeamMemory team;
  FindMemory find;
};

// Of one row, by a block.
class Step {
 public:
  __device__ Step(const StepArgument& step, StepMemory& memory, int row)
      : call_(step.call),
        memory_(memory),
        team_(memory.team),
        row_(row),
        round_(step.round),
        course_(call_.memory.courses[row]),
        bounds_(call_.memory.bounds + int64_t{row} * call_.clusters),
        logits_(call_.memory.logits + int64_t{row} * call_.head.vocab),
        weights_(reinterpret_cast<double*>(call_.memory.room + row * call_.memory.room_stride)) {}

  __device__ bool IsDone() const { return course_.is_done; }

  // The answer to the row, where there is one.
  __device__ bool Answer() {
    if (course_.has_broken != 0) return End(ClusterPath::kDense, ClusterReason::kLogit, 0);
    const ClusterPath path = round_ <= kBudgetRounds    ? ClusterPath::kBudget
                             : round_ == kExpandedRound ? ClusterPath::kExpanded
                                                        : ClusterPath::kDense;
    const bool is_dense = path == ClusterPath::kDense;
    const int count = round_ == 0 ? 0 : Certain();
    if (count > 0) {
      return End(path, is_dense ? ClusterReason::kBudget : ClusterReason::kNone, count);
    }
    const double looser = 2.0 * call_.question.epsilon;
    if (round_ == kExpandedRound && call_.budget.relaxes && looser < 1.0 && Is(Kind::kSoftmax) &&
        SoftmaxHolds(closed_, mass_, looser)) {
      return End(ClusterPath::kRelaxed, ClusterReason::kNone, course_.rows);
    }
    return false;
  }

  // Lists the clusters of the next round.
  __device__ void Open() {
    const int64_t target = Target();
    uint64_t from = 0;
    if (target < call_.head.vocab) {
      auto sizes_of = [&](auto is_in, auto key_of) {
        return [&, is_in, key_of](auto add) {
          for (int c = team_.thread(); c < call_.clusters; c += kThreads) {
            if (is_in(c)) add(key_of(c), 1u, static_cast<uint64_t>(call_.shapes[c].size));
          }
        };
      };
      auto key_of = [&](int c) { return semantics::OrderKey(bounds_[c]); };
      const auto wanted = static_cast<uint64_t>(target);
      const Found found = Find<Amount::kMass>(team_, memory_.find, wanted,
                                              sizes_of([](int) { return true; }, key_of));
      const Found tie =
          Find<Amount::kMass>(team_, memory_.find, wanted - found.above,
                              sizes_of([&](int c) { return key_of(c) == found.key; },
                                       [](int c) { return ~static_cast<uint32_t>(c); }));
      from = uint64_t{found.key} << 32 | tie.key;
    }
    int32_t* const list = call_.memory.list + int64_t{row_} * call_.clusters;
    int32_t* const starts = call_.memory.starts + int64_t{row_} * call_.clusters;
    int clusters = course_.clusters, rows = course_.rows;
#pragma unroll 1
    for (int base = 0; base < call_.clusters; base += kThreads) {
      const int c = base + team_.thread();
      const bool opens = c < call_.clusters && !IsOpen(c) && KeyOfToken(bounds_[c], c) >= from;
      const uint64_t mine =
          opens ? uint64_t{1} << 32 | static_cast<uint32_t>(call_.shapes[c].size) : 0;
      const Team::Sums<uint64_t> sums = team_.SumsOfBlock(mine);
      if (opens) {
        const int place = clusters + static_cast<int>(sums.before >> 32);
        list[place] = c;
        starts[place] = rows + static_cast<int>(sums.before & 0xffffffffu);
      }
      clusters += static_cast<int>(sums.all >> 32);
      rows += static_cast<int>(sums.all & 0xffffffffu);
    }
    if (team_.thread() != 0) return;
    ClusterCourse& course = call_.memory.courses[row_];
    course.open_from = from;
    course.clusters = clusters;
    course.rows_before = course_.rows;
    course.rows = rows;
  }

 private:
  using Kind = ClusterCertificate;
  __device__ bool Is(Kind kind) const { return call_.question.certificate == kind; }
  __device__ bool IsAll() const { return course_.rows == call_.head.vocab; }
  __device__ bool IsOpen(int c) const { return KeyOfToken(bounds_[c], c) >= course_.open_from; }

  // Rows that are open behind the next round, or more.
  __device__ int64_t Target() const {
    const int64_t vocab = call_.head.vocab;
    if (round_ >= kExpandedRound) return vocab;
    const double share = round_ == kBudgetRounds ? 2.0 : 1.0 / (1 << (kBudgetRounds - 1 - round_));
    const double rows = ceil(share * course_.budget);
    return rows >= static_cast<double>(vocab) ? vocab
           : rows >= 1.0                      ? static_cast<int64_t>(rows)
                                              : 1;
  }

  __device__ bool End(ClusterPath path, ClusterReason reason, int count) {
    if (team_.thread() == 0) {
      ClusterCourse& course = call_.memory.courses[row_];
      course.is_done = true;
      course.answer = {count, path, reason, course_.clusters, course_.rows, 0.0};
      if (count > 0 && Is(Kind::kSoftmax)) course.answer.epsilon = MostVariation(closed_, mass_);
    }
    return true;
  }

  // How many of the open rows are the answer for certain; 0: it is not known.
  __device__ int Certain() {
    const float most_closed = LookAtClosed();
    if (Is(Kind::kTopK)) {
      const auto bound = static_cast<double>(most_closed);
      const int above = Count([&](float x) { return IsAboveClosed(x, bound); });
      return above >= call_.question.k ? call_.question.k : 0;
    }
    const float most = semantics::ValueOfKey(course_.most);
    double mass = 0.0;
    for (int i = team_.thread(); i < course_.rows; i += kThreads) {
      weights_[i] = ClusterWeight(static_cast<double>(logits_[i]), most, Temperature());
      mass += weights_[i];
    }
    mass_ = team_.ReduceBlock(mass, Plus{});
    if (Is(Kind::kTopP)) return SizeOfNucleus(most, most_closed);
    return SoftmaxHolds(closed_, mass_, call_.question.epsilon) ? course_.rows : 0;
  }

  __device__ double Temperature() const { return call_.question.temperature; }

  // The largest bound of a closed cluster, and the mass of all.
  __device__ float LookAtClosed() {
    const float most = semantics::ValueOfKey(course_.most);
    uint64_t key = 0;
    double mass = 0.0;
    for (int c = team_.thread(); c < call_.clusters; c += kThreads) {
      if (IsOpen(c)) continue;
      const float bound = bounds_[c];
      key = max(key, uint64_t{semantics::OrderKey(bound)});
      if (Is(Kind::kTopK)) continue;
      mass += static_cast<double>(call_.shapes[c].size) *
              ClusterWeight(static_cast<double>(bound), most, Temperature());
    }
    closed_ = team_.ReduceBlock(mass, Plus{});
    key = team_.MaxOfBlock(key);
    return key == 0 ? -INFINITY : semantics::ValueOfKey(static_cast<uint32_t>(key));
  }

  // Open rows, and their mass.
  template <typename IsIn>
  __device__ int Count(IsIn is_in) const {
    uint64_t count = 0;
    for (int i = team_.thread(); i < course_.rows; i += kThreads)
      count += is_in(logits_[i]) ? 1 : 0;
    return static_cast<int>(team_.SumOfBlock(count));
  }
  template <typename IsIn>
  __device__ double Mass(IsIn is_in) const {
    double mass = 0.0;
    for (int i = team_.thread(); i < course_.rows; i += kThreads) {
      if (is_in(logits_[i])) mass += weights_[i];
    }
    return team_.ReduceBlock(mass, Plus{});
  }

  // Top-p by bisection of where its last token lies: a sum in one order never falls where more is
  // added.
  __device__ int SizeOfNucleus(float most, float most_closed) const {
    const NucleusEnds ends = NucleusEndsOf(call_.question.p, mass_, closed_, IsAll());
    auto mass_from = [&](uint32_t key) {
      return Mass([&](float x) { return semantics::OrderKey(x) >= key; });
    };
    uint32_t low = IsAll() ? 0 : semantics::OrderKey(most_closed) + 1;
    uint32_t high = course_.most;
    if (low > high || !(mass_from(low) >= ends.high)) return 0;
#pragma unroll 1
    while (low < high) {
      const uint32_t middle = high - (high - low) / 2;
      if (mass_from(middle) >= ends.high) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const double above = Mass([&](float x) { return semantics::OrderKey(x) > low; });
    if (above >= ends.low) return 0;  // the nucleus may end before this value
    const int count_above = Count([&](float x) { return semantics::OrderKey(x) > low; });
    const int ties = Count([&](float x) { return semantics::OrderKey(x) == low; });
    const double weight =
        ClusterWeight(static_cast<double>(semantics::ValueOfKey(low)), most, Temperature());
    auto ties_of = [&](double end) {
      const double wanted = ceil((end - above) / weight);
      return wanted < 1.0                         ? 1
             : wanted < static_cast<double>(ties) ? static_cast<int>(wanted)
                                                  : ties;
    };
    const int kept = ties_of(ends.high);
    return ties_of(ends.low) == kept ? count_above + kept : 0;
  }

  const ClusterArgument& call_;
  StepMemory& memory_;
  const Team team_;
  const int row_;
  const int round_;
  const ClusterCourse course_;
  const float* const bounds_;
  const float* const logits_;
  double* const weights_;
  double mass_ = 0.0;    // of open rows
  double closed_ = 0.0;  // of the others, at most
};

__global__ void __launch_bounds__(kThreads, 1)
    StepKernel(const __grid_constant__ StepArgument argument) {
  __shared__ StepMemory memory;
  Begin();
  Step step(argument, memory, static_cast<int>(blockIdx.x));
  __syncthreads();  // the first thread writes what all have read
  if (step.IsDone() || step.Answer() || argument.round == kRounds) return;
  step.Open();
}

// A warp has a stretch of the rows that a round opens.
template <DType kWeight, bool kIsAligned>
__device__ void ComputeRows(const ClusterArgument& call, int row) {
  using Weight = typename ElementOf<kWeight>::Type;
  const ClusterCourse& course = call.memory.courses[row];
  const int64_t warps = int64_t{gridDim.x} * (kWarpThreads / kWarpSize);
  const int64_t warp = (int64_t{blockIdx.x} * kWarpThreads + threadIdx.x) / kWarpSize;
  const int64_t rows = course.rows - course.rows_before;
  const int begin = course.rows_before + static_cast<int>(warp * rows / warps);
  const int end = course.rows_before + static_cast<int>((warp + 1) * rows / warps);
  if (begin == end) return;
  const int32_t* const list = call.memory.list + int64_t{row} * call.clusters;
  const int32_t* const starts = call.memory.starts + int64_t{row} * call.clusters;
  int first = 0;  // the last open cluster that starts at the first row or before
  for (int last = course.clusters - 1; first < last;) {
    const int middle = last - (last - first) / 2;
    if (starts[middle] <= begin) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  const int64_t at = int64_t{row} * call.head.vocab;
  const float* const states[1] = {call.memory.states + row * call.memory.state_stride};
  uint32_t most = 0, has_broken = 0;
  ClusterShape shape = call.shapes[list[first]];
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    while (i - starts[first] >= shape.size) shape = call.shapes[list[++first]];
    const int32_t id = call.tokens[shape.begin + (i - starts[first])];
    const Weight* const weights[1] = {static_cast<const Weight*>(call.head.weight) +
                                      id * call.head.stride};
    float sum[1][1][kLanesOfThread] = {};
    AddLanes<kWeight, DType::kF32, kIsAligned, kIsAligned ? 8 : 1>(weights, states, call.head.dim,
                                                                   sum);
    float logit = SumOfLanes(sum[0][0]);
    if (call.head.bias != nullptr) logit += call.head.bias[id];
    if (fabsf(logit) < INFINITY) {
      most = max(most, semantics::OrderKey(logit));
    } else {
      has_broken = 1;
    }
    if (threadIdx.x % kWarpSize != 0) continue;
    call.memory.ids[at + i] = id;
    call.memory.logits[at + i] = logit;
    call.memory.logit_of[at + id] = logit;
  }
  if (threadIdx.x % kWarpSize != 0) return;
  atomicMax(&call.memory.courses[row].most, most);
  if (has_broken != 0) atomicOr(&call.memory.courses[row].has_broken, 1u);
}

template <DType kWeight>
__global__ void __launch_bounds__(kWarpThreads)
    ComputeKernel(const __grid_constant__ ClusterArgument call) {
  Begin();
  const int row = static_cast<int>(blockIdx.y);
  if (call.memory.courses[row].is_done) return;
  if (call.is_aligned) {
    ComputeRows<kWeight, true>(call, row);
  } else {
    ComputeRows<kWeight, false>(call, row);
  }
}

struct AnswerMemory {
  TeamMemory team;
  uint32_t count;
  union {
    FindMemory find;
    uint64_t tokens[kSortedNear];
  };
};

// The first `count` of the open rows in the total order.
__device__ void WriteFirst(const ClusterArgument& call, AnswerMemory& memory, int row, int rows,
                           int count) {
  const Team team(memory.team);
  const int64_t at = int64_t{row} * call.head.vocab;
  const int32_t* const ids = call.memory.ids + at;
  const float* const logits = call.memory.logits + at;
  uint64_t from = 0;
  if (count < rows) {
    const Found found =
        Find<Amount::kCount>(team, memory.find, static_cast<uint64_t>(count), [&](auto add) {
          for (int i = team.thread(); i < rows; i += kThreads) {
            add(semantics::OrderKey(logits[i]), 1u, 0);
          }
        });
    const uint64_t ties = static_cast<uint64_t>(count) - found.above;
    const Found tie = Find<Amount::kCount>(team, memory.find, ties, [&](auto add) {
      for (int i = team.thread(); i < rows; i += kThreads) {
        if (semantics::OrderKey(logits[i]) == found.key) add(~static_cast<uint32_t>(ids[i]), 1u, 0);
      }
    });
    from = uint64_t{found.key} << 32 | tie.key;
  }
  uint64_t* const tokens =
      count <= kSortedNear ? memory.tokens : call.memory.room + row * call.memory.room_stride;
  if (team.thread() == 0) memory.count = 0;
  __syncthreads();
  for (int i = team.thread(); i < rows; i += kThreads) {
    const uint64_t key = KeyOfToken(logits[i], ids[i]);
    if (key >= from) tokens[atomicAdd(&memory.count, 1u)] = key;
  }
  __syncthreads();
  SortDescending(team, tokens, count);
  for (int i = team.thread(); i < count; i += kThreads) {
    const int32_t id = IdOf(tokens[i]);
    call.ids[row * call.width + i] = id;
    // As it was computed: an order key has no sign of a zero.
    call.logits[row * call.width + i] = call.memory.logit_of[at + id];
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    AnswerKernel(const __grid_constant__ ClusterArgument call) {
  __shared__ AnswerMemory memory;
  Begin();
  const int row = static_cast<int>(blockIdx.x);
  const ClusterCourse& course = call.memory.courses[row];
  const ClusterRow answer = course.answer;
  if (call.question.certificate == ClusterCertificate::kSoftmax) {
    const int64_t at = int64_t{row} * call.head.vocab;
    for (int i = static_cast<int>(threadIdx.x); i < answer.count; i += kThreads) {
      call.ids[row * call.width + i] = call.memory.ids[at + i];
      call.logits[row * call.width + i] = call.memory.logits[at + i];
    }
  } else if (answer.count > 0) {
    WriteFirst(call, memory, row, course.rows, answer.count);
  }
  if (threadIdx.x != 0) return;
  call.answers[row] = answer;
  if (call.paces == nullptr || answer.reason == ClusterReason::kHidden) return;
  ClusterPace pace = PaceOf(call, row);
  Follow(pace, call.budget, call.head.vocab, answer.path == ClusterPath::kDense);
  call.paces[row] = pace;
}

// Blocks of a row for as many warps, when all rows have as many.
unsigned BlocksOfRow(int64_t warps, int rows) {
  constexpr int64_t kWarps = kWarpThreads / kWarpSize;
  const int64_t most = CurrentDeviceShape().processors * kBlocksOfProcessor;
  return static_cast<unsigned>(
      std::clamp<int64_t>((warps + kWarps - 1) / kWarps, 1, std::max<int64_t>(1, most / rows)));
}

}  // namespace

void SearchClusters(const ClusterCall& call, const ClusterQuestion& question,
                    const ClusterPlaces& places, void* stream) {
  ClusterArgument argument = ArgumentOf(call, question, places);
  if (argument.rows == 0) return;
  const auto rows = static_cast<unsigned>(argument.rows);
  auto launch = [&](const void* kernel, unsigned blocks, unsigned blocks_y, unsigned threads,
                    void* of_kernel) {
    LaunchBehind(kernel, {.blocks = blocks, .blocks_y = blocks_y, .threads = threads}, of_kernel,
                 stream);
  };
  const void* const compute =
      ForDType<const ClusterArgument>(argument.dtype, ComputeKernel<DType::kF32>,
                                      ComputeKernel<DType::kBf16>, ComputeKernel<DType::kF16>);
  launch(reinterpret_cast<const void*>(PrepareKernel), rows, 1, kWarpThreads, &argument);
  launch(reinterpret_cast<const void*>(BoundKernel), BlocksOfRow(argument.clusters, argument.rows),
         rows, kWarpThreads, &argument);
  StepArgument step = {argument, 0};
  for (;; ++step.round) {
    launch(reinterpret_cast<const void*>(StepKernel), rows, 1, kThreads, &step);
    if (step.round == kRounds) break;
    launch(compute, BlocksOfRow(argument.head.vocab, argument.rows), rows, kWarpThreads, &argument);
  }
  launch(reinterpret_cast<const void*>(AnswerKernel), rows, 1, kThreads, &argument);
}

}  // namespace sluice::cuda
