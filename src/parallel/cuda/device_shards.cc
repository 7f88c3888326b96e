// Checks of sharded calls, their memory, and the order of their stages.
#include "parallel/cuda/device_shards.h"

#include <cuda_runtime.h>

#include <algorithm>

#include "cuda/cuda_check.h"
#include "parallel/cuda/device_memory.h"

namespace sluice::cuda {
namespace {

struct GatheredMemory {
  std::byte* own;
  std::byte* all;
  std::byte* whole;
  TokenResult* results;
  size_t bytes;
};

GatheredMemory GatheredMemoryOf(std::byte* workspace, const ShardCall& call, int32_t ranks,
                                int64_t widest) {
  const size_t element = SizeOf(call.logits.dtype);
  const auto rows = static_cast<size_t>(call.logits.rows);
  const size_t part = rows * static_cast<size_t>(widest) * element;
  MemoryParts parts(workspace);
  GatheredMemory memory{};
  memory.own = parts.Take<std::byte>(part);
  memory.all = parts.Take<std::byte>(part * static_cast<size_t>(ranks));
  memory.whole = parts.Take<std::byte>(rows * static_cast<size_t>(call.slice.vocab) * element);
  memory.results = parts.Take<TokenResult>(rows);
  memory.bytes = parts.bytes();
  return memory;
}

void CheckCall(const ShardCall& call, const DeviceShardGroup& group) {
  CheckRows(call.logits);
  CheckRowParams(call.params, call.logits.rows, true);
  CheckHasNoPatches(call.params);
  CheckMethod(call.method);
  CheckInRange("kind", static_cast<int64_t>(call.kind), 0, 2);
  CheckInRange("exchanges", static_cast<int64_t>(call.exchanges), 1, 2);
  CheckInRange("group.ranks", group.ranks(), 1, kMostShards);
  CheckSlice(call.slice, call.logits);
  CheckInRange("candidates", call.candidates, 1, kMostDeviceCandidates / group.ranks());
}

void CheckSampled(const ShardCall& call, const DeviceShardGroup& group,
                  DeviceArray<TokenResult> results, DeviceArray<ShardPath> paths) {
  CheckCall(call, group);
  const int64_t rows = call.logits.rows;
  CheckOneARow("results", results, rows);
  CheckOneARow("paths", paths, rows);
  CheckWorkspace("workspace", call.workspace,
                 ShardWorkspaceBytes(rows, call.candidates, group.ranks()));
}

void ExchangeReports(const ShardArgument& argument, DeviceShardGroup& group, void* stream) {
  const auto bytes = static_cast<int64_t>(static_cast<size_t>(argument.rows.rows) *
                                          ReportBytes(argument.candidates));
  group.AllGather({argument.memory.own_reports, bytes},
                  {argument.memory.all_reports, bytes * group.ranks()}, stream);
}

void ExchangeSums(const ShardArgument& argument, DeviceShardGroup& group, void* stream) {
  const auto bytes = argument.rows.rows * static_cast<int64_t>(sizeof(DeviceSums));
  group.AllGather({reinterpret_cast<const std::byte*>(argument.memory.own_sums), bytes},
                  {reinterpret_cast<std::byte*>(argument.memory.all_sums), bytes * group.ranks()},
                  stream);
}

// They say where the logits of each rank go.
void CheckSlices(std::span<const ShardSlice> slices, const ShardCall& call,
                 const DeviceShardGroup& group) {
  CheckSize("slices", slices.size(), group.ranks());
  CheckInRange("group.rank", group.rank(), 0, group.ranks() - 1);
  const int64_t vocab = call.slice.vocab;
  int64_t next_id = 0;
  for (const ShardSlice& slice : slices) {
    CheckInRange("slices.vocab", slice.vocab, vocab, vocab);
    CheckInRange("slices.first_id", slice.first_id, next_id, next_id);
    CheckInRange("slices.tokens", slice.tokens, 1, vocab - next_id);
    next_id += slice.tokens;
  }
  CheckInRange("the tokens of all slices", next_id, vocab, vocab);
  const ShardSlice& own = slices[static_cast<size_t>(group.rank())];
  CheckInRange("slice.first_id", call.slice.first_id, own.first_id, own.first_id);
  CheckInRange("slice.tokens", call.slice.tokens, own.tokens, own.tokens);
}

void Copy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
            int64_t rows, void* stream) {
  RequireCuda(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, static_cast<size_t>(rows),
                                cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(stream)),
              "a copy of logits");
}

}  // namespace

ShardMemory ShardMemoryOf(std::byte* workspace, int64_t rows, int32_t candidates, int32_t ranks) {
  const auto count = static_cast<size_t>(rows);
  const auto others = static_cast<size_t>(ranks);
  const size_t listed = count * static_cast<size_t>(candidates);
  const size_t reports = count * ReportBytes(candidates);
  MemoryParts parts(workspace);
  ShardMemory memory{};
  memory.indices = parts.Take<int32_t>(listed);
  memory.values = parts.Take<float>(listed);
  memory.statuses = parts.Take<RowStatus>(count);
  memory.lengths = parts.Take<int32_t>(count);
  memory.own_reports = parts.Take<std::byte>(reports);
  memory.all_reports = parts.Take<std::byte>(reports * others);
  memory.own_sums = parts.Take<DeviceSums>(count);
  memory.all_sums = parts.Take<DeviceSums>(count * others);
  memory.progress = parts.Take<ShardProgress>(count);
  memory.open_rows = parts.Take<int32_t>(count);
  memory.open_count = parts.Take<int32_t>(1);
  memory.bytes = parts.bytes();
  return memory;
}

ShardArgument ShardArgumentOf(const ShardCall& call, int32_t ranks,
                              DeviceArray<TokenResult> results, DeviceArray<ShardPath> paths) {
  LogitsView own = call.logits;
  own.vocab = call.slice.tokens;
  return {.rows = ArgumentOf(own, call.params),
          .first_id = static_cast<int32_t>(call.slice.first_id),
          .vocab = static_cast<int32_t>(call.slice.vocab),
          .candidates = call.candidates,
          .ranks = ranks,
          .method = call.method,
          .kind = call.kind,
          .memory = ShardMemoryOf(call.workspace.data, call.logits.rows, call.candidates, ranks),
          .results = results.data,
          .paths = paths.data};
}

void EnqueueFirst(const ShardCall& call, const ShardArgument& argument, void* stream) {
  if (call.kind != ShardRows::kListed) LaunchDraws(argument, call.logits.dtype, stream);
  if (call.kind == ShardRows::kDrawn) return;
  LogitsView own = call.logits;
  own.vocab = call.slice.tokens;
  const int64_t listed = call.logits.rows * call.candidates;
  TopkInput input;
  input.scores = own;
  input.k = call.candidates;
  if (call.kind == ShardRows::kAny) input.lengths = {argument.memory.lengths, call.logits.rows};
  TopkOutput output;
  output.indices = {argument.memory.indices, listed};
  output.values = {argument.memory.values, listed};
  output.statuses = {argument.memory.statuses, call.logits.rows};
  Topk(input, output, stream);
  LaunchReports(argument, stream);
}

ShardCall OnLogits(const ShardHeadCall& call) {
  const MutableLogitsView& logits = call.logits;
  return {.logits = {logits.data, logits.rows, logits.vocab, logits.stride, logits.dtype,
                     logits.device},
          .slice = call.slice,
          .params = call.params,
          .method = call.method,
          .candidates = call.candidates,
          .kind = ShardRows::kListed,
          .exchanges = call.exchanges,
          .workspace = call.workspace};
}

ShardArgument ShardArgumentOf(const ShardHeadCall& call, int32_t ranks,
                              DeviceArray<TokenResult> results, DeviceArray<ShardPath> paths) {
  ShardArgument argument = ShardArgumentOf(OnLogits(call), ranks, results, paths);
  argument.needs_cuts = call.needs_cuts;
  // Planes say nothing of the lowest token, which a Cut of everything names.
  const bool has_draws = !call.needs_cuts && call.method == DrawMethod::kGumbel;
  argument.kind = has_draws ? ShardRows::kAny : ShardRows::kListed;
  return argument;
}

void EnqueueFirst(const ShardHeadCall& call, const ShardArgument& argument, void* stream) {
  const bool has_draws = argument.kind == ShardRows::kAny;
  QuestionArgument question = {};
  question.k = call.candidates;
  if (has_draws) {
    const RowsArgument& rows = argument.rows;
    question.method = argument.method;
    question.params = rows.params;
    question.keys = rows.keys;
    question.has_params_per_row = rows.has_params_per_row;
    question.has_keys_per_row = rows.has_keys_per_row;
    question.limits = rows.limits;
    question.first_id = argument.first_id;
    question.vocab = argument.vocab;
  }
  const CertifiedArgs head = ArgumentOf(call.head, question);
  const TopPlaces first = {argument.memory.indices, argument.memory.values,
                           argument.memory.statuses};
  LaunchCertifiedPrefix(head, stream);
  LaunchTopOfSurvivors(head, first, stream);
  if (has_draws) LaunchSurvivingDraws(argument, head, stream);
  LaunchDense(head, stream);
  LaunchTopOfDense(head, first, stream);
  if (has_draws) {
    ShardArgument dense = argument;
    dense.rows.data = head.memory.scores;
    dense.rows.stride_bytes = int64_t{head.planes.tiles} * kTileRows * int64_t{sizeof(float)};
    dense.rows_to_draw = {head.memory.dense_rows, &head.memory.counters->dense};
    LaunchDraws(dense, DType::kF32, stream);
  }
  LaunchReports(argument, stream);
}

void EnqueueDense(const ShardHeadCall& call, const ShardArgument& argument, void* stream) {
  LaunchOpen(argument, stream);
  // The hidden states are in the head's workspace, as its planes took them.
  QuestionArgument question = {};
  question.k = call.candidates;
  const CertifiedArgs head = ArgumentOf(call.head, question);
  ProjectListed(head.head, head.dtype,
                {head.memory.hidden, argument.memory.open_rows, argument.memory.open_count,
                 static_cast<float*>(call.logits.data), call.logits.stride, head.bitmask},
                stream);
}

size_t ShardWorkspaceBytes(int64_t rows, int32_t candidates, int32_t ranks) {
  CheckInRange("rows", rows, 0, INT32_MAX / 2);
  CheckInRange("ranks", ranks, 1, kMostShards);
  CheckInRange("candidates", candidates, 1, kMostDeviceCandidates / ranks);
  return ShardMemoryOf(nullptr, rows, candidates, ranks).bytes;
}

int64_t ShardBytesPerRow(int32_t candidates, ShardExchanges exchanges) {
  const bool has_sums = exchanges == ShardExchanges::kTwo;
  return static_cast<int64_t>(ReportBytes(candidates) + (has_sums ? sizeof(DeviceSums) : 0));
}

void Sample(const ShardCall& call, DeviceShardGroup& group, DeviceArray<TokenResult> results,
            DeviceArray<ShardPath> paths, void* stream) {
  CheckSampled(call, group, results, paths);
  if (call.logits.rows == 0) return;
  const ShardArgument argument = ShardArgumentOf(call, group.ranks(), results, paths);
  EnqueueFirst(call, argument, stream);
  ExchangeReports(argument, group, stream);
  LaunchMerge(argument, stream);
  if (call.exchanges == ShardExchanges::kOne) return;
  LaunchSums(argument, call.logits.dtype, stream);
  ExchangeSums(argument, group, stream);
  LaunchFinish(argument, stream);
}

void Sample(const ShardHeadCall& head, DeviceShardGroup& group, DeviceArray<TokenResult> results,
            DeviceArray<ShardPath> paths, void* stream) {
  const ShardCall call = OnLogits(head);
  CheckSampled(call, group, results, paths);
  const int64_t tokens = call.slice.tokens;
  CheckInRange("head.weight.rows", head.head.head.weight.rows, tokens, tokens);
  CheckInRange("candidates", call.candidates, 1, std::min<int64_t>(tokens, kMostCertifiedK));
  CheckInRange("logits.rows", call.logits.rows, head.head.hidden.rows, head.head.hidden.rows);
  CheckDType("logits", call.logits.dtype, DType::kF32);
  if (call.logits.rows == 0) return;
  const ShardArgument argument = ShardArgumentOf(head, group.ranks(), results, paths);
  EnqueueFirst(head, argument, stream);
  ExchangeReports(argument, group, stream);
  LaunchMerge(argument, stream);
  EnqueueDense(head, argument, stream);
  if (call.exchanges == ShardExchanges::kOne) return;
  LaunchSums(argument, call.logits.dtype, stream);
  ExchangeSums(argument, group, stream);
  LaunchFinish(argument, stream);
}

size_t GatheredWorkspaceBytes(const ShardCall& call, int32_t ranks, int64_t widest) {
  CheckInRange("ranks", ranks, 1, kMostShards);
  CheckInRange("widest", widest, 1, kMaxVocab);
  return GatheredMemoryOf(nullptr, call, ranks, widest).bytes;
}

void SampleGathered(const ShardCall& call, DeviceShardGroup& group,
                    std::span<const ShardSlice> slices, DeviceArray<std::byte> workspace,
                    DeviceArray<TokenResult> results, DeviceArray<const ShardPath> paths,
                    void* stream) {
  CheckCall(call, group);
  const int64_t rows = call.logits.rows;
  CheckOneARow("results", results, rows);
  CheckOneARow("paths", paths, rows, true);
  CheckSlices(slices, call, group);
  int64_t widest = 1;
  for (const ShardSlice& slice : slices) widest = std::max(widest, slice.tokens);
  CheckWorkspace("workspace", workspace, GatheredWorkspaceBytes(call, group.ranks(), widest));
  if (rows == 0) return;
  const GatheredMemory memory = GatheredMemoryOf(workspace.data, call, group.ranks(), widest);
  const size_t element = SizeOf(call.logits.dtype);
  const size_t pitch = static_cast<size_t>(widest) * element;
  const int64_t part = rows * static_cast<int64_t>(pitch);
  Copy2D(memory.own, pitch, call.logits.data, static_cast<size_t>(call.logits.stride) * element,
         static_cast<size_t>(call.slice.tokens) * element, rows, stream);
  group.AllGather({memory.own, part}, {memory.all, part * group.ranks()}, stream);
  for (int32_t r = 0; r < group.ranks(); ++r) {
    const ShardSlice& slice = slices[static_cast<size_t>(r)];
    Copy2D(memory.whole + static_cast<size_t>(slice.first_id) * element,
           static_cast<size_t>(call.slice.vocab) * element, memory.all + r * part, pitch,
           static_cast<size_t>(slice.tokens) * element, rows, stream);
  }
  const LogitsView whole{memory.whole,      rows,
                         call.slice.vocab,  call.slice.vocab,
                         call.logits.dtype, call.logits.device};
  if (paths.size == 0) return Sample(whole, call.params, call.method, results, stream);
  Sample(whole, call.params, call.method, {memory.results, rows}, stream);
  LaunchTakeGathered(memory.results, paths.data, results.data, rows, stream);
}

}  // namespace sluice::cuda
