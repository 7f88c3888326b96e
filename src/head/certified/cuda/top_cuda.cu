// The first k tokens of each row: of its survivors, and of the logits of a dense row by counting.
#include "cuda/radix_select.cuh"
#include "cuda/row_slice.cuh"
#include "cuda/scan_row.cuh"
#include "cuda/token_list.cuh"
#include "head/certified/cuda/row_progress.cuh"
#include "head/certified/cuda/survivor_list.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kCapacity = 4096;
static_assert(kCapacity >= kMostCertifiedK);

struct TopArgument {
  CertifiedArgs call;
  TopPlaces to;
};

// The row needs no first tokens but those that may win a draw.
__device__ bool HasNoTop(const RowProgress& progress) {
  return progress.filter_class == FilterClass::kSoftmax;
}

struct TopMemory {
  TeamMemory team;
  uint32_t count;
  union {
    uint64_t tokens[kCapacity];
    FindMemory find;
  };
};

// Bitonic, descending. tokens: `size` and room up to the next power of two.
__device__ void Sort(uint64_t* tokens, int size) {
  int end = 2;
  while (end < size) end *= 2;
  for (int i = size + static_cast<int>(threadIdx.x); i < end; i += kThreads) tokens[i] = 0;
  __syncthreads();
  for (int length = 2; length <= end; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < end / 2; i += kThreads) {
        const int a = i / step * 2 * step + i % step;
        const int b = a + step;
        const bool descends = (a & length) == 0;
        const uint64_t x = tokens[a], y = tokens[b];
        if (descends ? x < y : x > y) {
          tokens[a] = y;
          tokens[b] = x;
        }
      }
      __syncthreads();
    }
  }
}

// The first k of sorted tokens. Logits as they were computed: an order key has no sign of a zero.
__device__ void Write(const TopArgument& top, int row, const uint64_t* tokens, int size) {
  const int k = top.call.question.k;
  const int64_t width = int64_t{top.call.planes.tiles} * kTileRows;
  for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) {
    const int32_t id = i < size ? IdOf(tokens[i]) : -1;
    top.to.ids[int64_t{row} * k + i] = id;
    top.to.logits[int64_t{row} * k + i] =
        id < 0 ? -INFINITY : top.call.memory.scores[row * width + id];
  }
  if (threadIdx.x == 0) top.to.status[row] = RowStatus::kOk;
}

__device__ void Fail(const TopArgument& top, int row, RowStatus status) {
  const int k = top.call.question.k;
  for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) {
    top.to.ids[int64_t{row} * k + i] = -1;
    top.to.logits[int64_t{row} * k + i] = semantics::QuietNan();
  }
  if (threadIdx.x == 0) top.to.status[row] = status;
}

__global__ void __launch_bounds__(kThreads)
    TopOfSurvivorsKernel(const __grid_constant__ TopArgument top) {
  __shared__ TopMemory memory;
  LetNextKernelStart();
  AwaitKernelBefore();
  const CertifiedArgs& call = top.call;
  const int row = static_cast<int>(blockIdx.x);
  RowProgress& progress = call.memory.progress[row];
  if (HasNoTop(progress)) return;
  const bool is_first = threadIdx.x == 0;
  if (is_first) memory.count = 0;
  __syncthreads();
  if (HasTooMany(call, progress)) {
    if (is_first) LeaveToDense(progress, DenseReason::kSurvivors);
  } else if (progress.way != RowProgress::Way::kDense) {
    const RowStatus status = StatusOf(progress);
    if (status != RowStatus::kOk) {
      Fail(top, row, status);
      if (is_first) Report(call, row);
      return;
    }
    const CertifiedTokens survivors = TokensOf(call, row);
    if (progress.takes_first) {
      const uint64_t first = FirstSurvivor(Team(memory.team), survivors);
      if (is_first) memory.tokens[0] = first;
      __syncthreads();
      Write(top, row, memory.tokens, 1);
      if (is_first) Report(call, row);
      return;
    }
    for (int i = static_cast<int>(threadIdx.x); i < survivors.size; i += kThreads) {
      const auto [x, id] = survivors.data[i];
      if (x == -INFINITY || x < survivors.least) continue;
      const uint32_t place = atomicAdd(&memory.count, 1u);
      if (place < kCapacity) memory.tokens[place] = KeyOfToken(x, id);
    }
    __syncthreads();
    const int size = static_cast<int>(memory.count);
    if (size <= kCapacity) {
      Sort(memory.tokens, size);
      Write(top, row, memory.tokens, size);
    } else if (is_first) {
      LeaveToDense(progress, DenseReason::kSurvivors);
    }
  }
  __syncthreads();
  if (is_first) Report(call, row);
}

// A row of logits in which masked tokens are -inf.
__global__ void __launch_bounds__(kThreads)
    TopOfDenseKernel(const __grid_constant__ TopArgument top) {
  __shared__ TopMemory memory;
  AwaitKernelBefore();
  const CertifiedArgs& call = top.call;
  if (static_cast<int>(blockIdx.x) >= call.memory.counters->dense) return;
  const int row = call.memory.dense_rows[blockIdx.x];
  if (HasNoTop(call.memory.progress[row])) return;
  const Team team(memory.team);
  const float* const logits = call.memory.scores + int64_t{row} * call.planes.tiles * kTileRows;
  const RowSlice<DType::kF32> slice(team, logits, call.planes.vocab);
  const semantics::RowScan scan = ScanRow(team, slice);
  if (scan.status != RowStatus::kOk) return Fail(top, row, scan.status);
  const auto k = static_cast<uint64_t>(top.call.question.k);
  uint32_t last_key = semantics::OrderKey(semantics::kLowestValue);
  int last_id = INT32_MAX;
  if (static_cast<uint64_t>(scan.support) > k) {
    const Found found = Find<Amount::kCount>(team, memory.find, k, [&](auto add) {
      slice.ForEach([&](float x, int) {
        if (x > -INFINITY) add(semantics::OrderKey(x), 1u, 0);
      });
    });
    last_key = found.key;
    const Found tie = Find<Amount::kCount>(team, memory.find, k - found.above, [&](auto add) {
      slice.ForEach([&](float x, int id) {
        if (x > -INFINITY && semantics::OrderKey(x) == last_key) {
          add(~static_cast<uint32_t>(id), 1u, 0);
        }
      });
    });
    last_id = static_cast<int>(~tie.key);
  }
  if (threadIdx.x == 0) memory.count = 0;
  __syncthreads();
  slice.ForEach([&](float x, int id) {
    if (x == -INFINITY) return;
    const uint32_t key = semantics::OrderKey(x);
    if (key < last_key || (key == last_key && id > last_id)) return;
    memory.tokens[atomicAdd(&memory.count, 1u)] = KeyOfToken(x, id);
  });
  __syncthreads();
  const int size = static_cast<int>(memory.count);
  Sort(memory.tokens, size);
  Write(top, row, memory.tokens, size);
}

void Launch(const void* kernel, const CertifiedArgs& call, const TopPlaces& places, void* stream) {
  TopArgument argument = {call, places};
  LaunchDependent(kernel, {.blocks = static_cast<unsigned>(call.memory.rows), .threads = kThreads},
                  &argument, stream);
}

}  // namespace

void LaunchTopOfSurvivors(const CertifiedArgs& call, const TopPlaces& places, void* stream) {
  Launch(reinterpret_cast<const void*>(TopOfSurvivorsKernel), call, places, stream);
}

void LaunchTopOfDense(const CertifiedArgs& call, const TopPlaces& places, void* stream) {
  Launch(reinterpret_cast<const void*>(TopOfDenseKernel), call, places, stream);
}

void TopK(const CertifiedCall& call, const CertifiedTopK& top, void* stream) {
  CheckInRange("k", top.k, 1, std::min<int64_t>(kMostCertifiedK, call.planes.vocab));
  QuestionArgument question = {};
  question.k = top.k;
  const CertifiedArgs argument = ArgumentOf(call, question);
  const int64_t rows = call.hidden.rows;
  CheckSize("ids", static_cast<size_t>(top.ids.size), rows * top.k);
  CheckSize("logits", static_cast<size_t>(top.logits.size), rows * top.k);
  CheckOneARow("status", top.status, rows);
  if (rows == 0) return;
  const TopPlaces places = {top.ids.data, top.logits.data, top.status.data};
  LaunchCertifiedPrefix(argument, stream);
  LaunchTopOfSurvivors(argument, places, stream);
  LaunchDense(argument, stream);
  LaunchTopOfDense(argument, places, stream);
}

}  // namespace sluice::cuda
