// Checks of sharded calls for log-probabilities, their memory, and the order of their stages.
#include "parallel/cuda/device_logprobs.h"

#include "parallel/cuda/device_memory.h"

namespace sluice::cuda {
namespace {

constexpr int32_t kMostWidth = 1 + 128;

}  // namespace

LogprobMemory LogprobMemoryOf(std::byte* workspace, int64_t rows, int32_t width, int32_t ranks) {
  const auto count = static_cast<size_t>(rows);
  const auto others = static_cast<size_t>(ranks);
  const size_t sums = count * LogprobSumsBytes(ListedOf(width));
  MemoryParts parts(workspace);
  LogprobMemory memory{};
  memory.own_reports = parts.Take<LogprobReport>(count);
  memory.all_reports = parts.Take<LogprobReport>(count * others);
  memory.own_sums = parts.Take<std::byte>(sums);
  memory.all_sums = parts.Take<std::byte>(sums * others);
  memory.bytes = parts.bytes();
  return memory;
}

ShardLogprobArgument ArgumentOf(const ShardLogprobCall& call, int32_t rank, int32_t ranks,
                                DeviceArray<TokenResult> results) {
  LogitsView own = call.logits;
  own.vocab = call.slice.tokens;
  const bool has_lists = call.lists.width > 0;
  return {
      .rows = ArgumentOf(own, call.params),
      .first_id = static_cast<int32_t>(call.slice.first_id),
      .vocab = static_cast<int32_t>(call.slice.vocab),
      .rank = rank,
      .ranks = ranks,
      .mode = call.mode,
      .listed = ListedOf(call.lists.width),
      .results = results.data,
      .kept_masses = call.kept_masses.size == 0 ? nullptr : call.kept_masses.data,
      .list_ids = has_lists ? call.lists.ids.data : nullptr,
      .list_values = has_lists ? call.lists.values.data : nullptr,
      .memory = LogprobMemoryOf(call.workspace.data, call.logits.rows, call.lists.width, ranks)};
}

size_t ShardLogprobWorkspaceBytes(int64_t rows, int32_t width, int32_t ranks) {
  CheckInRange("rows", rows, 0, INT32_MAX / 2);
  CheckInRange("lists.width", width, 0, kMostWidth);
  CheckInRange("ranks", ranks, 1, kMostShards);
  return LogprobMemoryOf(nullptr, rows, width, ranks).bytes;
}

void Logprobs(const ShardLogprobCall& call, DeviceShardGroup& group,
              DeviceArray<TokenResult> results, void* stream) {
  const int64_t rows = call.logits.rows;
  CheckRows(call.logits);
  CheckRowParams(call.params, rows, false);
  CheckHasNoPatches(call.params);
  CheckInRange("mode", static_cast<int64_t>(call.mode), 0, 3);
  CheckInRange("group.ranks", group.ranks(), 1, kMostShards);
  CheckInRange("group.rank", group.rank(), 0, group.ranks() - 1);
  CheckSlice(call.slice, call.logits);
  CheckOneARow("results", results, rows);
  CheckOneARow("kept_masses", call.kept_masses, rows, true);
  CheckInRange("lists.width", call.lists.width, 0, kMostWidth);
  if (call.lists.width > 0) {
    CheckOneARow("lists.ids", call.lists.ids, rows * call.lists.width);
    CheckOneARow("lists.values", call.lists.values, rows * call.lists.width);
  }
  CheckWorkspace("workspace", call.workspace,
                 ShardLogprobWorkspaceBytes(rows, call.lists.width, group.ranks()));
  if (rows == 0) return;
  const ShardLogprobArgument argument = ArgumentOf(call, group.rank(), group.ranks(), results);
  const LogprobMemory& memory = argument.memory;
  const auto reports = rows * static_cast<int64_t>(sizeof(LogprobReport));
  const auto sums = rows * static_cast<int64_t>(LogprobSumsBytes(argument.listed));
  LaunchLogprobReports(argument, call.logits.dtype, stream);
  group.AllGather({reinterpret_cast<const std::byte*>(memory.own_reports), reports},
                  {reinterpret_cast<std::byte*>(memory.all_reports), reports * group.ranks()},
                  stream);
  LaunchLogprobSums(argument, call.logits.dtype, stream);
  group.AllGather({memory.own_sums, sums}, {memory.all_sums, sums * group.ranks()}, stream);
  LaunchLogprobFinish(argument, stream);
}

}  // namespace sluice::cuda
