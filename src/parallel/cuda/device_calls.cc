// Whether the calls of several GPUs fit together, found out between their processes.
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "cuda/cuda_check.h"
#include "cuda/row_launch.h"
#include "parallel/cuda/device_memory.h"
#include "parallel/row_request.h"
#include "support/rows.h"

namespace sluice::cuda {
namespace {

// The shape of any call: it decides how many bytes a rank sends, and when.
struct CallShape {
  int64_t rows;
  DType dtype = DType::kF32;  // of logits that may be gathered
  DrawMethod method = DrawMethod::kGumbel;
  ShardRows kind = ShardRows::kListed;
  ShardExchanges exchanges = ShardExchanges::kTwo;
  bool needs_cuts = true;
  LogprobMode mode = LogprobMode::kRawLogprobs;
  int32_t width = 0;
};

template <typename See>
void ForEachField(const CallShape& shape, See see) {
  see("logits.rows", shape.rows);
  see("logits.dtype", static_cast<int32_t>(shape.dtype));
  see("method", static_cast<int32_t>(shape.method));
  see("kind", static_cast<int32_t>(shape.kind));
  see("exchanges", static_cast<int32_t>(shape.exchanges));
  see("needs_cuts", static_cast<int32_t>(shape.needs_cuts));
  see("mode", static_cast<int32_t>(shape.mode));
  see("lists.width", shape.width);
}

template <typename T>
std::vector<T> OnHost(DeviceArray<const T> array) {
  std::vector<T> host(static_cast<size_t>(array.size));
  RequireCuda(cudaMemcpy(host.data(), array.data, host.size() * sizeof(T), cudaMemcpyDeviceToHost),
              "a copy of parameters");
  return host;
}

// The slices of ranks that a step takes: no GPU has a slice of no tokens. On all ranks, so that
// none throws it alone while the others wait.
std::vector<ShardSlice> FilledSlicesOf(const ShardRank& rank) {
  std::vector<ShardSlice> slices;
  for (int32_t r = 0; r < rank.ranks(); ++r) {
    slices.push_back(rank.slice(r));
    if (slices.back().tokens == 0) {
      ThrowInvalid("slice.tokens", "0 on rank " + std::to_string(r), "at least 1");
    }
  }
  return slices;
}

// request_of(row).
template <typename RequestOf>
void CompareRows(ShardRank& rank, int64_t rows, RequestOf request_of) {
  uint64_t* const own = rank.Parts<uint64_t>(rows);
  for (int64_t row = 0; row < rows; ++row) own[row] = Fingerprint(request_of(row));
  rank.Exchange();
  RequireSameRequests(
      rank, rows, [&](int32_t of, int64_t row) { return rank.PartOf<uint64_t>(of, row); },
      request_of);
}

std::vector<ShardSlice> CompareSampled(ShardGroup& processes, const ShardCall& call,
                                       bool needs_cuts) {
  const int64_t rows = call.logits.rows;
  CheckRowParams(call.params, rows, true);
  const std::vector<SelectParams> params = OnHost(call.params.params);
  const std::vector<NoiseKey> keys = OnHost(call.params.keys);
  ShardRank rank(processes, call.slice, call.candidates);
  const std::vector<ShardSlice> slices = FilledSlicesOf(rank);
  rank.Begin(ShardTask::kCompare);
  RequireSameFields(rank, CallShape{.rows = rows,
                                    .dtype = call.logits.dtype,
                                    .method = call.method,
                                    .kind = call.kind,
                                    .exchanges = call.exchanges,
                                    .needs_cuts = needs_cuts});
  CompareRows(rank, rows, [&](int64_t row) {
    return SampleRequest{PerRow(std::span(params), row), PerRow(std::span(keys), row),
                         call.params.limits, call.method};
  });
  return slices;
}

}  // namespace

std::vector<ShardSlice> CompareCalls(ShardGroup& processes, const ShardCall& call) {
  return CompareSampled(processes, call, true);
}

std::vector<ShardSlice> CompareCalls(ShardGroup& processes, const ShardHeadCall& call) {
  const auto slices = CompareSampled(processes, OnLogits(call), call.needs_cuts);
  for (const ShardSlice& slice : slices) {
    CheckInRange("candidates", call.candidates, 1,
                 std::min<int64_t>(slice.tokens, kMostCertifiedK));
  }
  return slices;
}

std::vector<ShardSlice> CompareCalls(ShardGroup& processes, const ShardLogprobCall& call) {
  const int64_t rows = call.logits.rows;
  CheckRowParams(call.params, rows, false);
  const std::vector<SelectParams> params = OnHost(call.params.params);
  ShardRank rank(processes, call.slice, 1);
  const std::vector<ShardSlice> slices = FilledSlicesOf(rank);
  rank.Begin(ShardTask::kCompare);
  RequireSameFields(rank, CallShape{.rows = rows, .mode = call.mode, .width = call.lists.width});
  CompareRows(rank, rows, [&](int64_t row) { return PerRow(std::span(params), row); });
  return slices;
}

}  // namespace sluice::cuda
