// SampleReported: the draw and the report in one kernel. The draw's list of the row's top has the
// maximum, the most likely tokens and the rank; what is left is the mass, an exact sum that needs
// the maximum: one read behind the list. Rows that such a list does not decide are drawn as ever
// and reported in two reads of their own.
#include "draw/raw_report.cuh"
#include "pipeline/sample_kernel.cuh"
#include "pipeline/sample_reported.h"

namespace sluice::cuda {
namespace {

struct ReportedSample {
  SampleArgument sample;
  LogprobsArgument report;
};

// In dynamic shared memory. The draw's comes first: MemoryOfBlock.
struct ReportedMemory {
  SampleMemory sample;

  // Of the first block.
  uint64_t masses[kMostBlocks];
  const uint64_t* tokens;  // the top of the row, sorted
  int32_t size;            // 0: not there
  int32_t place;           // of the token that was drawn
};
static_assert(sizeof(ReportedMemory) <= kMostSharedBytes);
static_assert(sizeof(RawMemory) <= sizeof(FirstReadMemory));

__device__ ReportedMemory& ReportedMemoryOfBlock() {
  return reinterpret_cast<ReportedMemory&>(MemoryOfBlock());
}

// The mass of the row, to the first block, whose list has the maximum. By all blocks, behind the
// Sync behind the list and with one at its end. False where there is no maximum to have.
template <DType kDType>
__device__ bool AddMass(const Team& team, ReportedMemory& memory, const RowsArgument& rows, int row,
                        bool has_mass) {
  if (!has_mass) return true;
  const TokenList& list = *team.Of(0, &memory.sample.first.list);
  const int size = static_cast<int>(list.count);
  if (size == 0 || size > kListCapacity || list.is_spoilt != 0) return false;
  uint32_t largest = 0;
#pragma unroll 1
  for (int i = team.thread(); i < size; i += team.threads()) {
    largest = ::max(largest, static_cast<uint32_t>(list.tokens[i] >> 32));
  }
  const float max = semantics::ValueOfKey(static_cast<uint32_t>(team.MaxOfBlock(largest)));
  const uint64_t mine = MassOfSlice(VectorSlice<kDType>(team, rows, row), max,
                                    semantics::TemperatureScale(1.0f), [](const auto&) {});
  const uint64_t mass = team.SumOfBlock(mine);
  if (team.thread() == 0) *team.Of(0, memory.masses + team.rank()) = mass;
  team.Sync();
  return true;
}

// By the first block, of a row whose top is there.
template <DType kDType>
__device__ void PutTop(const Team& block, const ReportedMemory& memory,
                       const LogprobsArgument& argument, int index, int blocks) {
  const RowReport report(argument, index);
  const RowSlice<kDType> row(block, RowOf(argument.rows, index), argument.rows.vocab);
  // A list does not tell the sign of a zero.
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
    uint64_t mass = 0;
    for (int other = 0; other < blocks; ++other) mass += memory.masses[other];
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
        is_wanted_(report.is_wanted()) {}

  __device__ TopPlan PlanOf(const SelectParams& params, int vocab, int elements) const {
    TopPlan plan = PlanOfTop(params, vocab, elements);
    const bool is_own = is_wanted_ && plan.needed > 0 && !plan.is_whole;
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

  // Of a row whose plan is a list. More tokens are not sorted.
  __device__ bool IsOwn(const SelectParams&) const {
    const TopPlan& plan = MemoryOfBlock().plan;
    return is_wanted_ && !plan.is_whole && plan.needed >= listed_ && plan.needed <= kMostOwn;
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
    const bool is_there = AddMass<kDType>(team, memory, argument.rows, row, has_mass);
    if (!is_there || team.rank() != 0 || top.size <= 0) return result;
    if (team.thread() == 0) memory.size = 0;
    result = SampleFromTop(team, memory.sample, top, memory.sample.plan, argument, NoTypical{},
                           [&](const ListedTokens& sorted, int place) {
                             const bool has_all = top.has_all && sorted.size == top.size;
                             if (threadIdx.x != 0 || (sorted.size < listed_ && !has_all)) return;
                             memory.tokens = sorted.tokens;
                             memory.size = sorted.size;
                             memory.place = place;
                           });
    team.SyncBlock();
    if (memory.size > 0) {
      PutTop<kDType>(team.Block(), memory, argument_, row, team.blocks());
    } else {
      result.id = kUndecided;
    }
    return result;
  }

 private:
  static constexpr int kMostOwn = 400;

  const LogprobsArgument& argument_;
  int listed_;
  bool is_wanted_;
};

// In two reads. Not inline, as the definition.
template <DType kDType>
__device__ __noinline__ void ReportByItself(const LogprobsArgument& argument, int row) {
  SampleMemory& memory = MemoryOfBlock();
  const Team team(memory.team);
  const RowReport report(argument, row);
  team.Sync();  // nobody uses the draw's memory, and its answer is there
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
  const DrawWithReport beside(argument.report, report);
  const bool is_decided = SampleByGuess<kDType, false>(team, memory, argument.sample, row, beside);
  if (!is_decided) SampleByDefinition<kDType, false>(argument.sample, row);
  if (!report.is_wanted()) {
    if (team.rank() == 0) report.PutNothing(team);
  } else if (!is_decided || memory.plan.needed == 0 || !beside.IsOwn(memory.start.params)) {
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
