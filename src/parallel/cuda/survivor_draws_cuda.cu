// The message of a rank for a row that is drawn from everything, from the survivors of its
// certified head: the first token of the slice and the few that may win, in their exact logits.
//
// Every token that may win, whatever the row's maximum is, has survived: the head computes every
// token with an upper bound within a hundredth of what some token's score reaches for certain, and
// that is more than a maximum of another slice can change among scores (rank_draws_cuda.cu). Rows
// with too many survivors are left to the head's dense logits, and rank_draws_cuda.cu sends their
// tokens.
#include "head/certified/cuda/row_progress.cuh"
#include "head/certified/cuda/survivor_list.cuh"
#include "parallel/cuda/device_shards.h"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 512;

struct SurvivingDraws {
  ShardArgument shard;
  CertifiedArgs head;
};

struct ReportMemory {
  TeamMemory team;
  uint32_t sent;
};

// A row's message: nothing but a status, so far.
__device__ uint64_t* Clear(const ShardArgument& shard, int row, RowStatus status) {
  std::byte* const message = shard.memory.own_reports + row * ReportBytes(shard.candidates);
  uint64_t* const tokens = reinterpret_cast<uint64_t*>(message + sizeof(DeviceDrawReport));
  for (int i = static_cast<int>(threadIdx.x); i < shard.candidates; i += kThreads) tokens[i] = 0;
  if (threadIdx.x == 0) {
    // A slice without support says nothing of the row.
    if (status == RowStatus::kEmptySupport) status = RowStatus::kOk;
    *reinterpret_cast<DeviceDrawReport*>(message) = {0, 0, static_cast<uint32_t>(status), 0};
  }
  __syncthreads();
  return tokens;
}

__device__ void WriteReport(const SurvivingDraws& argument, const RowProgress& progress, int row,
                            ReportMemory& memory) {
  const ShardArgument& shard = argument.shard;
  const RowStatus status = StatusOf(progress);
  uint64_t* const tokens = Clear(shard, row, status);
  if (status != RowStatus::kOk) return;
  const Team block(memory.team);
  const CertifiedTokens survivors = TokensOf(argument.head, row);
  const semantics::Stream stream = semantics::GumbelStream(progress.key);
  auto score_of = [&](const semantics::Token& token) {
    const int32_t id = shard.first_id + token.id;
    return token.x * progress.draw_scale +
           semantics::Gumbel(semantics::NoiseBits(progress.key, stream, id));
  };
  const uint64_t first = FirstSurvivor(block, survivors);
  uint64_t best = 0;
  for (int i = block.thread(); i < survivors.size; i += kThreads) {
    const semantics::Token token = survivors.data[i];
    if (token.x > -INFINITY) best = max(best, uint64_t{semantics::OrderKey(score_of(token))});
  }
  best = block.Max(best);
  const float floor = SurelyBelow(semantics::ValueOfKey(static_cast<uint32_t>(best)));
  for (int i = block.thread(); i < survivors.size; i += kThreads) {
    const semantics::Token token = survivors.data[i];
    if (!(token.x > -INFINITY) || token.id == IdOf(first) || !(score_of(token) >= floor)) continue;
    const uint32_t place = 1 + atomicAdd(&memory.sent, 1u);
    if (place < static_cast<uint32_t>(shard.candidates)) {
      tokens[place] = KeyOfToken(token.x, shard.first_id + token.id);
    }
  }
  block.SyncBlock();
  // A maximum that scales to infinity leaves nothing to compare.
  const bool is_complete =
      fabsf(floor) < INFINITY && memory.sent < static_cast<uint32_t>(shard.candidates);
  if (!is_complete) {
    for (int i = 1 + block.thread(); i < shard.candidates; i += kThreads) tokens[i] = 0;
  }
  if (threadIdx.x != 0) return;
  tokens[0] = KeyOfToken(ValueOf(first), shard.first_id + IdOf(first));
  DeviceDrawReport& report = *(reinterpret_cast<DeviceDrawReport*>(tokens) - 1);
  report.count = 1;  // or more
  report.ties = is_complete ? 0 : DeviceDrawReport::kIncomplete;
}

__global__ void __launch_bounds__(kThreads)
    SurvivingDrawsKernel(const __grid_constant__ SurvivingDraws argument) {
  __shared__ ReportMemory memory;
  LetNextKernelStart();
  AwaitKernelBefore();
  const CertifiedArgs& head = argument.head;
  const int row = static_cast<int>(blockIdx.x);
  RowProgress& progress = head.memory.progress[row];
  const bool is_drawn = progress.filter_class == FilterClass::kSoftmax;
  if (threadIdx.x == 0) {
    memory.sent = 0;
    argument.shard.memory.lengths[row] = is_drawn ? 0 : argument.shard.rows.vocab;
  }
  if (!is_drawn) return;
  __syncthreads();
  const bool has_too_many = HasTooMany(head, progress);
  if (!has_too_many && progress.way != RowProgress::Way::kDense)
    WriteReport(argument, progress, row, memory);
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (has_too_many) LeaveToDense(progress, DenseReason::kSurvivors);
  Report(head, row);
}

}  // namespace

void LaunchSurvivingDraws(const ShardArgument& shard, const CertifiedArgs& head, void* stream) {
  SurvivingDraws argument = {shard, head};
  LaunchDependent(reinterpret_cast<const void*>(SurvivingDrawsKernel),
                  {.blocks = static_cast<unsigned>(shard.rows.rows), .threads = kThreads},
                  &argument, stream);
}

}  // namespace sluice::cuda
