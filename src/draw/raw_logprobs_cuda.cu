// Log-probabilities and logits as the model gave them, which do not depend on the token that was
// drawn but for its rank: all that takes reads of the row is done beside the draw. One read finds
// the maximum and a threshold, another the mass and the few tokens above the threshold, and among
// those are nearly always the token and the list.
#include "backend/long_mass_sum.cuh"
#include "backend/row_status.cuh"
#include "backend/rows.cuh"
#include "draw/likely_tokens.cuh"
#include "draw/row_report.cuh"

namespace sluice::cuda {
namespace {

// So many are noted at least, so that the token is among them.
constexpr int kNoted = 64;
static_assert(kNoted <= kLikelyGroups);

// In shared memory.
struct RawMemory {
  TeamMemory team;
  LikelyMemory likely;
};

// The maximum with the sign that the definition gives a zero: that of the first of equal ones.
template <DType kDType>
__device__ float SignedMax(const Team& team, const RowSlice<kDType>& row, float max) {
  if (max != 0.0f) return max;
  uint32_t complement = 0;  // of the first id
  row.ForEach([&](float x, int id) {
    if (x == 0.0f) complement = ::max(complement, ~static_cast<uint32_t>(id));
  });
  return row.ValueOf(static_cast<int>(~static_cast<uint32_t>(team.Max(complement))));
}

// How many tokens are not below one. Vectors are filled up with masked values.
template <DType kDType>
__device__ uint64_t CountFrom(const Team& team, const VectorSlice<kDType>& vectors,
                              const RowSlice<kDType>& row, float sampled) {
  uint32_t count = 0;
  if (sampled > -INFINITY) {
    ForEachValue(vectors, [&](float x) { count += x >= sampled ? 1 : 0; });
  } else {
    row.ForEach([&](float x, int) { count += x >= sampled ? 1 : 0; });
  }
  return team.Sum(count);
}

template <DType kDType>
__global__ void __launch_bounds__(kMostThreads)
    RawLogprobsKernel(const __grid_constant__ LogprobsArgument argument) {
  __shared__ RawMemory memory;
  const Team team(memory.team);
  const int index = TeamIndex(team);
  const RowReport report(argument, index);
  if (!report.is_wanted()) {
    AwaitKernelBefore();
    if (team.rank() == 0) report.PutNothing(team);
    return;
  }
  const int vocab = argument.rows.vocab;
  const VectorSlice<kDType> vectors(team, argument.rows, index);
  const RowSlice<kDType> row(team, RowOf(argument.rows, index), vocab);
  float largest = -INFINITY;
  bool has_nan = false;
  ForEachValue(vectors, [&](float x) {
    largest = fmaxf(largest, x);
    has_nan |= semantics::IsNan(x);
  });
  const LikelyRange range{INFINITY, semantics::kLowestValue, 0, INT32_MAX,
                          max(report.listed() - 1, 0)};
  const uint32_t key = LikelyThreshold(team, largest, max(range.wanted, kNoted), memory.likely);
  const float least =
      key == 0 ? semantics::kLowestValue : fmaxf(semantics::ValueOfKey(key), range.lower);
  const semantics::StatusAndMax found = StatusAndMaxOf(team, largest, has_nan);

  const bool has_mass =
      argument.mode == LogprobMode::kRawLogprobs && found.status == RowStatus::kOk;
  const float scale = semantics::TemperatureScale(1.0f);
  LikelyMemory& first = *team.Of(0, &memory.likely);
  LongMassSum sum;
  ForEachToken(vectors, [&](float x, int id) {
    if (has_mass) sum.Add(MassSum::Of(x, found.max, scale));
    if (x >= least) NoteLikely(first, x, id);
  });
  ModeValue value{argument.mode, argument.rows.no_params, semantics::NormalizerOf(0.0f, 1.0f, 0)};
  if (has_mass) {
    const uint64_t mass = team.Sum(sum.Total());
    value.normalizer = semantics::NormalizerOf(SignedMax(team, row, found.max), 1.0f, mass);
  }
  team.Sync();
  const int noted = static_cast<int>(first.count);
  AwaitKernelBefore();

  const TokenResult drawn = report.Drawn();
  team.Sync();  // everybody has read both
  if (drawn.id < 0) {
    if (team.rank() == 0) report.PutNothing(team);
    return;
  }
  const float sampled = row.ValueOf(drawn.id);
  float logprob = value(sampled);
  if (semantics::IsNan(logprob)) logprob = semantics::QuietNan();
  uint64_t rank = 0;
  if (noted <= kMostLikely && sampled >= least) {
    if (team.rank() != 0) return;
    uint32_t count = 0;
    for (int i = team.thread(); i < noted; i += team.threads()) {
      count += ValueOf(memory.likely.tokens[i]) >= sampled ? 1 : 0;
    }
    rank = team.Block().Sum(count);
  } else {
    rank = CountFrom(team, vectors, row, sampled);
  }
  if (team.IsFirstThread()) report.Put(logprob, static_cast<int32_t>(rank));
  if (report.listed() == 0) return;
  if (team.rank() == 0) report.BeginList(team, drawn.id, logprob);
  if (range.wanted == 0) return;
  team.Block().SyncBlock();
  auto put = [&](int n, int32_t id) { report.PutListed(1 + n, id, value(row.ValueOf(id))); };
  if (noted > kMostLikely) {
    ListOneByOne(team, vectors, vocab, range, put);
  } else if (team.rank() == 0) {
    PutLikely(team, memory.likely, noted, range, put);
  }
}

}  // namespace

const void* RawLogprobsKernelFor(DType dtype) {
  return ForDType(dtype, RawLogprobsKernel<DType::kF32>, RawLogprobsKernel<DType::kBf16>,
                  RawLogprobsKernel<DType::kF16>);
}

}  // namespace sluice::cuda
