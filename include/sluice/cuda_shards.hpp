// Sampling over a vocabulary that is split among GPUs: the answers of shards.hpp from logits in
// device memory, bit for bit. Link Sluice::cuda; for NCCL between the GPUs, Sluice::nccl.
//
// Sample does the first two exchanges of shards.hpp on the stream: it takes no memory, waits for
// nothing and can be captured in a CUDA graph, exchanges included. A row that they do not decide
// has the way kGathered and no token; the host sees it with the ids, the same on every rank, and
// calls SampleGathered for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sluice/cuda.hpp"
#include "sluice/shards.hpp"

namespace sluice::cuda {

// As ShardGroup, on a stream: each rank enqueues as many exchanges as the others, in one order.
class DeviceShardGroup {
 public:
  virtual ~DeviceShardGroup() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t ranks() const = 0;
  virtual void AllGather(DeviceArray<const std::byte> own, DeviceArray<std::byte> all,
                         void* stream) = 0;
};

// How many exchanges a call makes: rows that need the second one are kGathered without it. Greedy
// rows need one, and so does top-k up to `candidates` (with Ties::kAll, below `candidates`).
enum class ShardExchanges : uint8_t { kOne = 1, kTwo = 2 };

// candidates * ranks is at most this.
inline constexpr int32_t kMostDeviceCandidates = 1024;

// The same on all ranks, but for slice and logits.
struct ShardCall {
  LogitsView logits = {};  // of the slice; columns behind its tokens are padding, never read
  ShardSlice slice = {};   // of at least one token
  RowParams params = {};   // without patches
  DrawMethod method = DrawMethod::kGumbel;
  int32_t candidates = 64;
  ShardExchanges exchanges = ShardExchanges::kTwo;
  DeviceArray<std::byte> workspace = {};  // ShardWorkspaceBytes, aligned to 256
};

size_t ShardWorkspaceBytes(int64_t rows, int32_t candidates, int32_t ranks);

// What a rank sends to each of the others for a row.
int64_t ShardBytesPerRow(int32_t candidates, ShardExchanges exchanges);

// As Sample of cuda.hpp on the whole rows. ways: one a row. Left to SampleGathered are typical and
// top-n-sigma; larger k, wider nuclei and XTC on more than is listed; a top-p behind a min-p that
// does not end within the list; and cdf draws from more tokens than are listed.
void Sample(const ShardCall& call, DeviceShardGroup& group, DeviceArray<TokenResult> results,
            DeviceArray<ShardWay> ways, void* stream);

// For slices of at most `widest` tokens.
size_t GatheredWorkspaceBytes(const ShardCall& call, int32_t ranks, int64_t widest);

// The definition on the whole rows: all of the logits go to every rank. slices: of all ranks, in
// host memory; logits have one dtype on all of them. workspace: GatheredWorkspaceBytes, aligned to
// 256. The results of rows with another way than kGathered stay as they are; without ways all rows
// are decided. Its memory grows with rows times vocabulary: a call may be on a range of the rows
// alone, the same one on all ranks.
void SampleGathered(const ShardCall& call, DeviceShardGroup& group,
                    std::span<const ShardSlice> slices, DeviceArray<std::byte> workspace,
                    DeviceArray<TokenResult> results, DeviceArray<const ShardWay> ways,
                    void* stream);

}  // namespace sluice::cuda
