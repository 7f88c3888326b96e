// Sampling over a vocabulary that is split among GPUs: the answers of shards.hpp from logits in
// device memory, bit for bit. Link Sluice::cuda; for NCCL between the GPUs, Sluice::nccl.
//
// Sample does the first two exchanges of shards.hpp on the stream: it takes no memory, waits for
// nothing and can be captured in a CUDA graph, exchanges included. A row that they do not decide
// has the path kGathered and no token; the host sees it with the ids, which agree on every rank,
// and calls SampleGathered for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sluice/cuda/head.hpp"
#include "sluice/cuda/logprobs.hpp"
#include "sluice/cuda/rows.hpp"
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
// rows need one, and so does top-k up to `candidates` (with Ties::kAll, below `candidates`). Draws
// from everything that are declared so (ShardRows) need one where no more than `candidates` tokens
// of a slice may win: a few do, next to always fewer than 16.
enum class ShardExchanges : uint8_t { kOne = 1, kTwo = 2 };

// The kind of a call's rows. A call does not search for tokens of another kind.
enum class ShardRows : uint8_t {
  // First tokens are listed of all rows. Draws from everything take the second exchange.
  kListed,
  // All are drawn from everything by Gumbel, without a filter: each rank sends the tokens of its
  // slice that may win instead of its first ones. Other rows are kGathered.
  kDrawn,
  // Both kinds, each by its own message.
  kAny,
};

// candidates * ranks is at most this.
inline constexpr int32_t kMostDeviceCandidates = 1024;

// Equal on all ranks, but for slice and logits.
struct ShardCall {
  LogitsView logits = {};  // of the slice; columns after its tokens are padding, never read
  ShardSlice slice = {};   // of at least one token
  RowParams params = {};   // without patches
  DrawMethod method = DrawMethod::kGumbel;
  int32_t candidates = 64;
  ShardRows kind = ShardRows::kListed;
  ShardExchanges exchanges = ShardExchanges::kTwo;
  DeviceArray<std::byte> workspace = {};  // ShardWorkspaceBytes, aligned to 256
};

size_t ShardWorkspaceBytes(int64_t rows, int32_t candidates, int32_t ranks);

// The bytes that a rank sends to each of the others for a row.
int64_t ShardBytesPerRow(int32_t candidates, ShardExchanges exchanges);

// As Sample of cuda/rows.hpp on the whole rows. paths: one a row. Left to SampleGathered are
// typical and top-n-sigma; larger k, wider nuclei and XTC on more than is listed; a top-p after a
// min-p that does not end within the list; and cdf draws from more tokens than are listed.
void Sample(const ShardCall& call, DeviceShardGroup& group, DeviceArray<TokenResult> results,
            DeviceArray<ShardPath> paths, void* stream);

// A rank's rows of a certified head in place of its logits.
struct ShardHeadCall {
  // On the slice's rows of the weights, `candidates` or more of them: a rank with fewer throws by
  // itself, so compare with the smallest slice. hidden: equal on all ranks; bitmask: of the slice's
  // tokens.
  CertifiedCall head = {};
  ShardSlice slice = {};
  RowParams params = {};  // without patches
  DrawMethod method = DrawMethod::kGumbel;
  int32_t candidates = 64;
  ShardExchanges exchanges = ShardExchanges::kTwo;
  // False: rows that are drawn from everything by Gumbel get Cut{}, and are decided from planes in
  // one exchange where no more than `candidates` tokens of a slice may win. Their Cut would name
  // the lowest token, which planes do not have. Where SampleGathered decides one, it has its Cut.
  bool needs_cuts = true;
  DeviceArray<std::byte> workspace = {};  // ShardWorkspaceBytes, aligned to 256
  // fp32, a row for each hidden state: those of rows that planes do not decide are written to it.
  MutableLogitsView logits = {};
};

// As Sample of a ShardCall on the logits of the whole head. First tokens are listed from planes,
// which decide greedy rows and top-k up to `candidates`, and so are the tokens that may win a draw
// from everything where needs_cuts is false; other rows take the dense head of the slice, on the
// device, before the second exchange.
void Sample(const ShardHeadCall& call, DeviceShardGroup& group, DeviceArray<TokenResult> results,
            DeviceArray<ShardPath> paths, void* stream);

// The call on `logits` that SampleGathered and GatheredWorkspaceBytes take after the Sample above.
// It holds the logits of the rows that are kGathered.
ShardCall OnLogits(const ShardHeadCall& call);

// For slices of at most `widest` tokens.
size_t GatheredWorkspaceBytes(const ShardCall& call, int32_t ranks, int64_t widest);

// The definition on the whole rows: all of the logits go to every rank. slices: of all ranks, in
// host memory; logits have one dtype on all of them. workspace: GatheredWorkspaceBytes, aligned to
// 256. The results of rows with another path than kGathered stay as they are; without paths all
// rows are decided. Its memory grows with rows times vocabulary: a call may be on a range of the
// rows alone, the same one on all ranks.
void SampleGathered(const ShardCall& call, DeviceShardGroup& group,
                    std::span<const ShardSlice> slices, DeviceArray<std::byte> workspace,
                    DeviceArray<TokenResult> results, DeviceArray<const ShardPath> paths,
                    void* stream);

// Equal on all ranks, but for slice and logits.
struct ShardLogprobCall {
  LogitsView logits = {};  // of the slice; columns after its tokens are padding, never read
  ShardSlice slice = {};   // of at least one token
  RowParams params = {};   // without patches; keys are not read
  LogprobMode mode = LogprobMode::kRawLogprobs;
  DeviceArray<uint64_t> kept_masses = {};  // empty, or one a row
  DeviceLogprobLists lists = {};
  DeviceArray<std::byte> workspace = {};  // ShardLogprobWorkspaceBytes, aligned to 256
};

size_t ShardLogprobWorkspaceBytes(int64_t rows, int32_t width, int32_t ranks);

// As Logprobs of cuda/logprobs.hpp on the whole rows, with lists, of results that all ranks have:
// two exchanges on the stream, of 24 bytes a row each, the second one with 8 more for each most
// likely token of a list. Can be captured.
void Logprobs(const ShardLogprobCall& call, DeviceShardGroup& group,
              DeviceArray<TokenResult> results, void* stream);

// Checks that the calls which the ranks are about to make fit together. Call it before the first of
// them and where they change: on a stream nothing compares them, and ranks that differ wait for
// each other or draw different tokens. Throws Error, on all ranks, where slices overlap, leave gaps
// or are empty, or where a rank has another vocabulary, number of rows, or parameters of a row than
// the first one; of sampled rows also other keys, limits, candidates, draw method, kind, exchanges,
// needs_cuts or dtype of logits, of log-probabilities another mode or width of lists; each names
// rank and value. For a head's call also more candidates than the smallest slice has tokens.
// processes: the same ranks; one with wrong parameters or keys of its own (their number, null)
// throws alone, before it sends anything. Logits, hidden states and workspaces are not checked: the
// step does that. Copies parameters and keys to the host, and waits for what is on the device.
// Answers the slices of all ranks, as SampleGathered takes them.
std::vector<ShardSlice> CompareCalls(ShardGroup& processes, const ShardCall& call);
std::vector<ShardSlice> CompareCalls(ShardGroup& processes, const ShardHeadCall& call);
std::vector<ShardSlice> CompareCalls(ShardGroup& processes, const ShardLogprobCall& call);

}  // namespace sluice::cuda
