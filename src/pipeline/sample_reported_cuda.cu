// SampleReported: the draw and the report in one kernel. The draw's list of the row's top has the
// maximum, the most likely tokens and the rank; what is left is the mass, an exact sum that needs
// the maximum: the other blocks of the row add it up while the first one selects. Rows that the
// list does not decide are reported in two reads of their own.
#include "draw/mass_share.cuh"
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
  VerdictMemory verdict;  // of the maximum

  // Of the first block.
  uint64_t masses[kMostBlocks];  // of the others
  const uint64_t* tokens;        // the top of the row, sorted
  int32_t size;
  int32_t place;  // of the token that was drawn
};
static_assert(sizeof(ReportedMemory) <= kMostSharedBytes);
static_assert(sizeof(RawMemory) <= sizeof(FirstReadMemory));

__device__ ReportedMemory& ReportedMemoryOfBlock() {
  return reinterpret_cast<ReportedMemory&>(MemoryOfBlock());
}

// This block's part of the mass, to the first block, which has none: it selects. A Sync of the team
// makes it visible. Not inline, as all that is not in the way of the draw.
template <DType kDType>
__device__ __noinline__ void AddMass(const RowsArgument& rows, int row, float max) {
  ReportedMemory& memory = ReportedMemoryOfBlock();
  const Team team(memory.sample.team);
  const MassShare share{team.rank() - 1, team.blocks() - 1};
  const uint64_t of_block = team.SumOfBlock(MassOfShare<kDType>(team, rows, row, max, share));
  if (team.thread() == 0) *team.Of(0, memory.masses + team.rank()) = of_block;
}

// Of a row whose top is there, by its team. max: of the row. Not inline, as AddMass.
template <DType kDType>
__device__ __noinline__ void PutTop(const LogprobsArgument& argument, int index, float max) {
  ReportedMemory& memory = ReportedMemoryOfBlock();
  const Team team(memory.sample.team);
  const RowReport report(argument, index);
  const bool has_mass = argument.mode == LogprobMode::kRawLogprobs;
  team.Sync();
  if (team.rank() != 0) return;
  const RowSlice<kDType> row(team, RowOf(argument.rows, index), argument.rows.vocab);
  // A list does not tell the sign of a zero.
  auto value_of = [&](uint64_t token) {
    const float x = ValueOf(token);
    return x == 0.0f ? row.ValueOf(IdOf(token)) : x;
  };
  const uint64_t drawn = memory.tokens[memory.place];
  const int thread = team.thread();
  const bool is_before = thread < memory.size && ValueOf(memory.tokens[thread]) >= ValueOf(drawn);
  const int rank = team.Block().CountOfBlock(is_before);
  // The logarithm of the mass keeps the units of fp64 busy: of no more warps than write something.
  if (thread >= kWarpSize && thread >= argument.lists.width) return;
  ModeValue value{argument.mode, argument.rows.no_params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
  if (has_mass) {
    uint64_t mass = 0;
    for (int block = 1; block < team.blocks(); ++block) mass += memory.masses[block];
    value.normalizer = semantics::NormalizerOf(max, 1.0f, mass);
  }
  if (thread == 0) report.Put(value(value_of(drawn)), rank);
  for (int n = thread; n < argument.lists.width; n += team.threads()) {
    const bool is_listed = n < report.listed();
    const bool is_there = is_listed && n - 1 < memory.size;
    const uint64_t token = n == 0 || !is_there ? drawn : memory.tokens[n - 1];
    const float missing = is_listed ? -INFINITY : semantics::QuietNan();
    report.PutListed(n, is_there ? IdOf(token) : -1, is_there ? value(value_of(token)) : missing);
  }
}

// What the draw tells of the top of a row.
template <DType kDType>
class ReportOfTop {
 public:
  static constexpr uint32_t kDrawn = 1;
  static constexpr uint32_t kListed = 2;  // and the top is there

  // Before the draw.
  __device__ ReportOfTop(const Team& team, const LogprobsArgument& argument, int row,
                         const RowReport& report)
      : argument_(argument),
        row_(row),
        report_(report),
        verdict_(team, ReportedMemoryOfBlock().verdict) {
    if (team.thread() == 0) ReportedMemoryOfBlock().size = 0;
  }

  // The maximum of the row, if its top is there.
  __device__ float max() const { return semantics::ValueOfKey(largest_); }

  __device__ int Listed() const { return report_.is_wanted() ? ::max(report_.listed() - 1, 0) : 0; }

  __device__ void BesideSelection(const Team& team, const TokenList& list, const ListedTop& top) {
    if (!report_.is_wanted()) return;
    uint32_t largest = 0;
    if (team.rank() == 0 && top.size > 0) {
#pragma unroll 1
      for (int i = team.thread(); i < top.size; i += team.threads()) {
        largest = ::max(largest, static_cast<uint32_t>(list.tokens[i] >> 32));
      }
      largest = static_cast<uint32_t>(team.MaxOfBlock(largest));
      if (semantics::ValueOfKey(largest) == 0.0f) largest = 0;  // its sign is not known
    }
    largest_ = verdict_.Tell(largest);
    const bool has_mass = argument_.mode == LogprobMode::kRawLogprobs;
    if (largest_ != 0 && has_mass && team.rank() != 0) {
      AddMass<kDType>(argument_.rows, row_, max());
    }
  }

  __device__ void KeepTop(const ListedTokens& sorted, const ListedTop& top, int place) {
    const bool has_all = top.has_all && sorted.size == top.size;
    if (threadIdx.x != 0 || largest_ == 0 || (sorted.size < Listed() && !has_all)) return;
    ReportedMemory& memory = ReportedMemoryOfBlock();
    memory.tokens = sorted.tokens;
    memory.size = sorted.size;
    memory.place = place;
  }

  __device__ uint32_t Decided() const {
    return ReportedMemoryOfBlock().size > 0 ? kListed : kDrawn;
  }

 private:
  const LogprobsArgument& argument_;
  int row_;
  const RowReport& report_;
  Verdict verdict_;
  uint32_t largest_ = 0;  // order key of the maximum; 0: not known
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
  ReportOfTop<kDType> top(team, argument.report, row, report);
  const uint32_t told = SampleByGuess<kDType, false>(team, memory, argument.sample, row, top);
  if (told == 0) SampleByDefinition<kDType, false>(argument.sample, row);
  if (!report.is_wanted()) {
    if (team.rank() == 0) report.PutNothing(team);
  } else if (told == top.kListed) {
    PutTop<kDType>(argument.report, row, top.max());
  } else {
    ReportByItself<kDType>(argument.report, row);
  }
}

}  // namespace

bool CanSampleReported(int64_t rows) { return ShapeForRows(rows).blocks > 2; }

void SampleReported(const LogitsView& logits, const RowParams& params, DrawMethod method,
                    const AdjustedSamples& samples, const LogprobsArgument& report, void* stream) {
  ReportedSample argument{{.rows = ArgumentOf(logits, params),
                           .method = method,
                           .results = nullptr,
                           .ids = samples.ids,
                           .statuses = samples.statuses,
                           .ways = nullptr},
                          report};
  const void* kernel =
      ForDType(logits.dtype, SampleReportedKernel<DType::kF32>, SampleReportedKernel<DType::kBf16>,
               SampleReportedKernel<DType::kF16>);
  LaunchOverRows({kernel, ShapeForRows(logits.rows), sizeof(ReportedMemory)}, logits.rows,
                 &argument, stream);
}

}  // namespace sluice::cuda
