// Sampling over a vocabulary that is split among shards, without gathering the logits.
//
// Shards merge exactly: the order is total, masses are integer sums, and noise is keyed by the
// global token id. The answer is the one that the unsplit row would give, bit for bit.
//
// In one process, SelectShards and SampleShards take all shards of a row. With a process a shard (a
// rank), ShardSampler exchanges what the rank has computed of its slice:
//
//   1  for each row: status, number of unmasked tokens, and the first `candidates` tokens of the
//      slice in the total order (global id, logit). The first `candidates` of the whole row are
//      among them, and with them its largest value: no token of a slice comes before one that its
//      rank has listed first. This decides greedy rows, top-k up to `candidates` (where all ties
//      are kept: below it) with whatever follows it, and rows that have no more unmasked tokens
//      than that.
//   2  where the rest of the row counts: the slice's mass, which is an integer against the largest
//      value of the row (top-p); or, where all of the row or all above a weight is kept (no filter,
//      min-p), mass, count, lowest value and the best draw of the slice. The largest of the best
//      draws is that of the row.
//   3  for cdf draws of such rows: the token, from the rank that has it in its slice.
//   4  the slices of the rows that nothing of it decides (a larger k or a nucleus of more tokens
//   than
//      are listed; typical, top-n-sigma, and XTC on all of a long row): the definition on the whole
//      row, a few rows at a time. ShardPath says which rows were.
//
// Every rank does the same arithmetic on the same bytes, so all end with the same token.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sluice/certified_head.hpp"
#include "sluice/draw.hpp"
#include "sluice/logprobs.hpp"

namespace sluice {

// The tokens [first_id, first_id + logits.vocab). Shards are passed in ascending order, adjoin,
// and may differ in width and dtype; each has a row for every row of the batch.
struct Shard {
  LogitsView logits = {};
  int32_t first_id = 0;
};

struct ShardInput {
  std::span<const Shard> shards = {};
  std::span<const SelectParams> params = {};  // one, or one a row
  std::span<const NoiseKey> keys = {};        // read by XTC and by draws; else it may be empty
  Limits limits = {};
};

size_t ShardsWorkspaceBytes(const ShardInput& input, const Execution& execution);

void SelectShards(const ShardInput& input, std::span<Cut> cuts, const Execution& execution);

// The part of a whole row's Cut that falls into one shard: ties belong to the lower ids first.
// ties_before_upper and ties_before_lower: tokens equal to that boundary on the shards before, not
// negative. The count stays that of the whole row.
Cut ShardCut(const Cut& cut, int64_t ties_before_upper, int64_t ties_before_lower);

void SampleShards(const ShardInput& input, DrawMethod method, std::span<TokenResult> results,
                  const Execution& execution);

// How ranks hear from each other: each calls it as often as the others, in the same order.
class ShardGroup {
 public:
  virtual ~ShardGroup() = default;

  virtual int32_t rank() const = 0;
  virtual int32_t ranks() const = 0;

  // own: as many bytes on every rank. all: those of every rank, by rank. Throws Error naming a rank
  // that has ended, that does not answer in time or that sends another number of bytes (or one that
  // has given up because of it); the group is of no more use then, and says so.
  virtual void AllGather(std::span<const std::byte> own, std::span<std::byte> all) = 0;
};

// Processes of one machine, which meet at Unix sockets in `directory`: one of this group alone,
// since a second group in it would take the first one's places. `limit` is for all of them to come,
// and for every exchange after that. Throws Error when not all come in time.
std::unique_ptr<ShardGroup> ConnectShardGroup(std::string_view directory, int32_t rank,
                                              int32_t ranks, std::chrono::milliseconds limit);

// A rank of ConnectShardGroup needs a file descriptor for each.
inline constexpr int32_t kMostShards = 1024;

// The tokens [first_id, first_id + tokens) of the vocabulary. Slices adjoin in the order of ranks
// and may differ in size; one may have none.
struct ShardSlice {
  int64_t vocab = 0;  // of all ranks
  int64_t first_id = 0;
  int64_t tokens = 0;
};

// The part of the data that decided a row.
enum class ShardPath : uint8_t {
  kStatus,      // nothing: the row has a status
  kCandidates,  // the listed tokens, with a mass or without
  kSums,        // each rank's own slice: no filter, or min-p alone
  kGathered,    // the definition on the whole row
};
inline constexpr int kShardPaths = 4;

// Since the sampler was made.
struct ShardTraffic {
  int64_t exchanges = 0;
  int64_t bytes_sent = 0;  // by this rank to each of the others
  int64_t rows[kShardPaths] = {};
};

// One rank. Its logits are those of its slice, adjusted: adjustments look at one token at a time,
// so each rank makes those of its own. Columns after the slice's tokens are padding and are never
// read.
//
// All ranks make the same calls with the same parameters. A call with wrong arguments throws on its
// own rank before anything is sent, and the others hear nothing from it; rows with parameters
// differ between ranks throw on all of them, naming the rank and the value, and so do ranks that
// make different calls.
class ShardSampler {
 public:
  // candidates: how many tokens of a row a rank lists, equal on all ranks. Throws Error, on all
  // ranks, where slices overlap or leave gaps, or where a rank has another vocabulary or number of
  // candidates than the first one. The group must outlive the sampler.
  ShardSampler(ShardGroup& group, const ShardSlice& slice, int32_t candidates = 64);
  ~ShardSampler();
  ShardSampler(const ShardSampler&) = delete;
  ShardSampler& operator=(const ShardSampler&) = delete;

  // As Sample on the whole rows. paths: empty, or one a row. The workspace of `execution` is not
  // used: the sampler has its own, which grows with the largest call.
  void Sample(const SelectInput& own, DrawMethod method, std::span<TokenResult> results,
              const Execution& execution, std::span<ShardPath> paths = {});

  // As Sample of the whole certified head. head: of the slice's rows of the weights, one for each
  // token of the slice, which has some; input: the same hidden states on all ranks, and a mask of
  // the slice's tokens. Greedy rows and top-k up to `candidates` (with Ties::kAll: below it) are
  // listed from planes, rows that min-p alone bounds as far as the list goes, and draws from
  // everything are decided by the few tokens that may win them; other rows take the dense head of
  // the slice, and those that the merge does not decide, too. Returns what this rank read.
  CertifiedStats Sample(const CertifiedHead& head, const CertifiedInput& input,
                        std::span<const SelectParams> params, std::span<const NoiseKey> keys,
                        const Limits& limits, DrawMethod method, std::span<TokenResult> results,
                        const Execution& execution, std::span<ShardPath> paths = {});

  // As Logprobs on the whole rows, without lists: fills logprob and rank of results that Sample
  // gave. Two exchanges of 48 bytes a row in all.
  void Logprobs(const LogprobInput& own, std::span<TokenResult> results,
                const Execution& execution);

  const ShardTraffic& traffic() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
