// SampleReported: the draw and the report in one kernel. The draw's list of the row's top has the
// maximum, the most likely tokens and the rank; the mass remains, an exact sum that needs the
// maximum: one read after the list, while the first threads of the first block draw. Rows that
// such a list does not decide are drawn as ever and reported in two reads of their own.
#include "cuda/mass_pass.cuh"
#include "draw/cuda/raw_report.cuh"
#include "sampler/device/kernels/sample_kernel.cuh"
#include "sampler/device/kernels/sample_reported.h"

namespace sluice::cuda {
namespace {

struct ReportedSample {
  SampleArgument sample;
  LogprobsArgument report;
};

// In dynamic shared memory. The draw's comes first: MemoryOfBlock.
struct ReportedMemory {
  SampleMemory sample;

  // Of every block.
  uint64_t of_warps[kMostWarps];  // masses
  uint32_t taken;                 // of the second read
  uint32_t largest;               // order key of the row's maximum; 0: not known, no mass counts
  uint64_t largest_barrier;       // the barrier of others than the first block

  // Of the first block.
  uint64_t of_blocks[kMostBlocks];  // masses of the others
  uint64_t masses_barrier;          // their barrier
  const uint64_t* tokens;           // the top of the row, sorted
  int32_t size;                     // 0: not there
  int32_t place;                    // of the token that was drawn
};
static_assert(sizeof(ReportedMemory) <= kMostSharedBytes);
static_assert(sizeof(RawMemory) <= sizeof(WeightHistogramMemory));

__device__ ReportedMemory& ReportedMemoryOfBlock() {
  return reinterpret_cast<ReportedMemory&>(MemoryOfBlock());
}

// Before the blocks exchange anything.
__device__ void BeginMass(const Team& team, ReportedMemory& memory) {
  if (team.thread() != 0) return;
  memory.taken = memory.largest = 0;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() == 1) return;
  const bool is_first = team.rank() == 0;
  uint64_t* barrier = is_first ? &memory.masses_barrier : &memory.largest_barrier;
  StartBarrier(barrier);
  ExpectBytes(barrier, is_first ? 8 * (team.blocks() - 1) : 4);
#endif
}

// The largest of the first block's list, of so many tokens, to all blocks; by the first one.
__device__ void BroadcastLargest(const Team& team, ReportedMemory& memory, int size) {
  const TokenList& list = memory.sample.first.list;
  uint32_t largest = 0;
#pragma unroll 1
  for (int i = team.thread(); i < size; i += team.threads()) {
    largest = ::max(largest, static_cast<uint32_t>(list.tokens[i] >> 32));
  }
  largest = __reduce_max_sync(~0u, largest);
  if (team.lane() == 0 && largest > 0) atomicMax(&memory.largest, largest);
  team.SyncBlock();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.thread() > 0 && team.thread() < team.blocks()) {
    SendWord(team.thread(), &memory.largest, memory.largest, &memory.largest_barrier);
  }
#endif
}

// What this block has of the mass: by the threads that have nothing else to do, and at last by all.
template <DType kDType>
__device__ uint64_t MassOfBlock(const Team& team, ReportedMemory& memory, const RowsArgument& rows,
                                int row) {
  const MassPass<kDType> read(team, rows, row);
  auto await_max = [&] {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (team.rank() != 0) AwaitBarrier(&memory.largest_barrier, 0);
#endif
    return semantics::ValueOfKey(memory.largest);
  };
  const uint64_t mine = read.Mass(await_max, semantics::TemperatureScale(1.0f), memory.taken);
  const uint64_t of_warp = Team::ReduceWarp(mine, Plus{});
  if (team.lane() == 0) memory.of_warps[team.thread() / kWarpSize] = of_warp;
  team.SyncBlock();
  const int warps = team.threads() / kWarpSize;
  return Team::ReduceWarp(team.lane() < warps ? memory.of_warps[team.lane()] : 0, Plus{});
}

// Of the row, in the first block.
__device__ uint64_t MassOfRow(const Team& team, ReportedMemory& memory, uint64_t of_block) {
  uint64_t mass = of_block;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if (team.blocks() == 1) return mass;
  if (team.rank() != 0) {
    if (team.thread() == 0 && memory.largest != 0) {
      LongsOf(0, memory.of_blocks, &memory.masses_barrier).Send(team.rank(), of_block);
    }
    return mass;
  }
  AwaitBarrier(&memory.masses_barrier, 0);
  for (int other = 1; other < team.blocks(); ++other) mass += memory.of_blocks[other];
#endif
  return mass;
}

// By the first block, of a row with a listed top.
template <DType kDType>
__device__ void PutTop(const Team& block, const ReportedMemory& memory,
                       const LogprobsArgument& argument, int index, uint64_t mass) {
  const RowReport report(argument, index);
  const RowSlice<kDType> row(block, RowOf(argument.rows, index), argument.rows.vocab);
  // A list does not hold the sign of a zero.
  auto value_of = [&](uint64_t token) {
    const float x = ValueOf(token);
    return x == 0.0f ? row.ValueOf(IdOf(token)) : x;
  };
  const uint64_t drawn = memory.tokens[memory.place];
  const int thread = block.thread();
  const bool is_before = thread < memory.size && ValueOf(memory.tokens[thread]) >= ValueOf(drawn);
  const int rank = block.CountOfBlock(is_before);
  // The logarithm of the mass keeps the units of fp64 busy: of no more warps than write something.
  if (thread >= kWarpSize && thread >= argument.lists.width) return;
  ModeValue value{argument.mode, argument.rows.no_params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
  if (argument.mode == LogprobMode::kRawLogprobs) {
    value.normalizer = semantics::NormalizerOf(value_of(memory.tokens[0]), 1.0f, mass);
  }
  if (thread == 0) report.Put(value(value_of(drawn)), rank);
  for (int n = thread; n < argument.lists.width; n += block.threads()) {
    const bool is_listed = n < report.listed();
    const bool is_there = is_listed && n - 1 < memory.size;
    const uint64_t token = n == 0 || !is_there ? drawn : memory.tokens[n - 1];
    const float missing = is_listed ? -INFINITY : semantics::QuietNan();
    report.PutListed(n, is_there ? IdOf(token) : -1, is_there ? value(value_of(token)) : missing);
  }
}

// Draws with a report from the same list, where the list is one of the first k.
class DrawWithReport {
 public:
  static constexpr bool kHasOwnRows = true;
  static constexpr bool kGuesses = false;

  __device__ DrawWithReport(const LogprobsArgument& argument, const RowReport& report)
      : argument_(argument),
        listed_(::max(report.listed() - 1, 0)),
        is_requested_(report.is_requested()) {}

  __device__ TopPlan PlanOf(const SelectParams& params, int vocab, int elements) const {
    TopPlan plan = PlanOfTop(params, vocab, elements);
    const bool is_own = is_requested_ && plan.needed > 0 && !plan.is_whole;
    if (is_own && listed_ > plan.needed) {
      const TopPlan of_list = PlanOfTop({.top_k = listed_}, vocab, elements);
      if (of_list.needed > 0) plan = of_list;
    }
    return plan;
  }

  template <bool>
  __device__ NoMoments MomentsOf(const SelectParams&) const {
    return {};
  }

  // Of a row with a list as its plan. More tokens are not sorted.
  __device__ bool IsOwn(const SelectParams&) const {
    const TopPlan& plan = MemoryOfBlock().plan;
    return is_requested_ && !plan.is_whole && plan.needed >= listed_ && plan.needed <= kMostOwn;
  }

  // Not inline, as SampleFromList.
  template <DType kDType, bool kPatched>
  __device__ __noinline__ TokenResult Sample(const SampleArgument& argument, int row,
                                             const ListedTop top) const {
    ReportedMemory& memory = ReportedMemoryOfBlock();
    const Team team(memory.sample.team);
    TokenResult result;
    result.id = kUndecided;
    const bool has_mass = argument_.mode == LogprobMode::kRawLogprobs;
    if (team.rank() == 0) {
      if (has_mass) BroadcastLargest(team, memory, ::max(top.size, 0));
      if (top.size <= 0) return result;
      if (team.thread() == 0) memory.size = 0;
      result = SampleFromTop(team, memory.sample, top, memory.sample.plan, argument, NoTypical{},
                             [&](const ListedTokens& sorted, int place) {
                               const bool has_all = top.has_all && sorted.size == top.size;
                               if (threadIdx.x != 0 || (sorted.size < listed_ && !has_all)) return;
                               memory.tokens = sorted.tokens;
                               memory.size = sorted.size;
                               memory.place = place;
                             });
    } else if (!has_mass) {
      return result;
    }
    uint64_t mass = 0;
    if (has_mass) {
      mass = MassOfRow(team, memory, MassOfBlock<kDType>(team, memory, argument.rows, row));
    } else {
      team.SyncBlock();
    }
    if (team.rank() == 0 && memory.size > 0) {
      PutTop<kDType>(team.Block(), memory, argument_, row, mass);
    } else {
      result.id = kUndecided;
    }
    return result;
  }

 private:
  static constexpr int kMostOwn = 400;

  const LogprobsArgument& argument_;
  int listed_;
  bool is_requested_;
};

// In two reads. Not inline, as the definition.
template <DType kDType>
__device__ __noinline__ void ReportByItself(const LogprobsArgument& argument, int row) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const RowReport report(argument, row);
  team.Sync();  // no thread uses the draw's memory any more, and its answer is written
  ReportRaw<kDType>(team, *reinterpret_cast<RawMemory*>(&memory.first), argument, row, report,
                    [] {});
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    SampleReportedKernel(const __grid_constant__ ReportedSample argument) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const int row = TeamIndex(team);
  const RowReport report(argument.report, row);
  const DrawWithReport extension(argument.report, report);
  BeginMass(team, ReportedMemoryOfBlock());
  const bool is_decided =
      SampleByGuess<kDType, false>(team, memory, argument.sample, row, extension);
  if (!is_decided) SampleByDefinition<kDType, false>(argument.sample, row);
  if (!report.is_requested()) {
    if (team.rank() == 0) report.PutNothing(team);
  } else if (!is_decided || memory.plan.needed == 0 || !extension.IsOwn(memory.start.params)) {
    ReportByItself<kDType>(argument.report, row);
  }
}

}  // namespace

void SampleReported(const LogitsView& logits, const RowParams& params, DrawMethod method,
                    const AdjustedSamples& samples, const LogprobsArgument& report, void* stream) {
  ReportedSample argument{{.rows = ArgumentOf(logits, params),
                           .method = method,
                           .results = nullptr,
                           .ids = samples.ids,
                           .statuses = samples.statuses,
                           .ways = samples.ways},
                          report};
  const void* kernel =
      ForDType(logits.dtype, SampleReportedKernel<DType::kF32>, SampleReportedKernel<DType::kBf16>,
               SampleReportedKernel<DType::kF16>);
  LaunchOverRows({kernel, ShapeForRows(logits.rows), sizeof(ReportedMemory)}, logits.rows,
                 &argument, stream);
}

}  // namespace sluice::cuda
