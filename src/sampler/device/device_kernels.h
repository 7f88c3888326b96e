// The kernels of a DeviceSampler, from the host's side. Each call enqueues one kernel and can be
// captured; what its argument points to is device memory.
#pragma once

#include "cuda/row_launch.h"
#include "sampler/device/device_state.h"
#include "semantics/placed_cut.h"
#include "sluice/cuda/rows.hpp"

namespace sluice::cuda {

inline constexpr int kMostDrafts = 64;

// What the adjustments make of each row of a step, and the parameters and keys of its draw.
struct PatchArgument {
  RequestStore store;
  const StepRow* rows;
  const TreeRow* trees;  // null: all drafts are chains
  const int32_t* drafts;
  const int32_t* bitmasks;
  int32_t bitmask_words;

  SelectParams* params;
  NoiseKey* keys;
  RowPatch* patches;
  // For each row as many as a slot has room to watch, and its drafts.
  int32_t max_patch;
  int32_t* ids;
  PatchItem* items;
  uint32_t* endings;  // of what is watched: the repeat that it extends, and whether a bad word
  float* values;

  // Of Apply alone.
  const void* logits;
  int64_t stride_bytes;
  DType dtype;
};
// All but the values of the patches, before there are logits; and the values.
void LaunchPrepare(const PatchArgument& argument, int64_t rows, void* stream);
void LaunchApply(const PatchArgument& argument, int64_t rows, void* stream);

// The rows that processors change, written out as stages 3 to 8 leave them, with the parameters and
// keys of their draws.
struct WriteOutArgument {
  const int32_t* places;  // among the rows of the step, one for each that is written

  // One for each row of the step. patches: null when nothing is adjusted.
  const void* logits;
  int64_t stride_bytes;
  DType dtype;
  int32_t vocab;
  const SelectParams* params;
  const NoiseKey* keys;
  const RowPatch* patches;

  // One for each that is written.
  float* values;
  int64_t stride;
  SelectParams* written_params;
  NoiseKey* written_keys;
};
void LaunchWriteOut(const WriteOutArgument& argument, int64_t count, void* stream);

// The forced tokens of such rows, after the processors. -1: none.
struct ForceArgument {
  float* values;
  int64_t stride;
  int32_t vocab;
  const int32_t* forced;
};
void LaunchForce(const ForceArgument& argument, int64_t count, void* stream);

// What was drawn of such rows, to where the step looks for it.
struct PlaceArgument {
  const int32_t* places;
  int32_t count;
  const TokenResult* from;
  TokenResult* results;  // null: write ids and statuses
  int32_t* ids;
  RowStatus* statuses;
};
void LaunchPlace(const PlaceArgument& argument, void* stream);

// The masses of a step, selected row by row, as it reports them: none of rows without a token, and
// those of the rows that processors change from where they are.
struct SettleMassesArgument {
  const StepRow* rows;
  int32_t count;
  const int32_t* ids;
  const CutMass* processed;
  CutMass* masses;
};
void LaunchSettleMasses(const SettleMassesArgument& argument, void* stream);

// Kept sets as bitmasks, ceil(vocab / 32) words a row of the step, nothing of rows without a token.
// places: of the rows that are given, among those of the step, to which everything else belongs;
// null: they are those.
struct KeptArgument {
  RowsArgument rows;
  const int32_t* places;
  const TokenResult* results;  // their Cuts are read
  const int32_t* ids;
  int32_t* bitmasks;
};
void LaunchKept(KeptArgument argument, DType dtype, void* stream);

// The probabilities of a draft model's row, of any id.
struct DraftDistribution {
  semantics::Row row;  // data null: no draft model
  semantics::PlacedCut cut;
  float max;
  float scale;
  semantics::uint128_t reciprocal;  // of the mass, as semantics::Probability40 has it
  RowStatus status;
};
void LaunchDraftDistributions(const DraftModelRow* models, DraftDistribution* distributions,
                              int32_t vocab, int64_t rows, void* stream);

// Rejection sampling of the rows that have drafts to reject: `results` have their Cuts.
struct RejectArgument {
  RequestStore store;
  const StepRow* rows;
  const TreeRow* trees;  // null: all drafts are chains
  const int32_t* drafts;
  const void* logits;
  int64_t stride_bytes;
  DType dtype;
  int32_t vocab;
  const SelectParams* params;
  const NoiseKey* keys;
  const RowPatch* patches;
  const float* processed;  // rows that processors have changed, in place of logits and patches
  int64_t processed_stride;
  const float* const* probabilities;       // one a row; null: nothing is known of the draft
  const DraftDistribution* distributions;  // likewise; null: no step has a draft model
  TokenResult* results;
  // One a row; -1 where the draft must match, 0 where none is accepted. Else 1 of a chain, and of a
  // tree the row of its request that comes next.
  int32_t* accepted;
};
void LaunchReject(const RejectArgument& argument, int64_t rows, void* stream);
void LaunchRejectTrees(const RejectArgument& argument, int64_t rows, void* stream);

// Which rows stand: those up to the first that draws another token than its draft. The others
// become as if they had not been sampled.
struct VerdictArgument {
  RequestStore store;
  const StepRow* rows;
  const TreeRow* trees;  // null: all drafts are chains
  const int32_t* drafts;
  const StepSpan* spans;
  int32_t requests;
  const int32_t* accepted;         // null: every draft must match
  const TokenResult* results;      // null: read ids and statuses
  const TokenResult* cdf_results;  // null: no request draws by cdf, or all do
  const int32_t* cdf_ids;
  const RowStatus* cdf_statuses;
  int32_t* ids;
  RowStatus* statuses;
  Cut* cuts;  // null: not reported
  int32_t* emitted;
  int32_t* path;  // of trees
};
void LaunchVerdict(const VerdictArgument& argument, void* stream);
// As above, of trees; the rows that stand are not adjacent yet.
void LaunchTreeVerdict(const VerdictArgument& argument, void* stream);

// Moves the reports of the rows that stand to the first rows of their requests.
struct CompactArgument {
  const StepSpan* spans;
  const int32_t* path;
  int32_t* ids;
  RowStatus* statuses;
  Cut* cuts;        // null: not reported
  CutMass* masses;  // likewise
  float* logprobs;  // likewise
  int32_t* ranks;
  int32_t width;
  int32_t* list_ids;
  float* list_values;
  int32_t kept_words;  // of a row; 0: not reported
  int32_t* kept;
};
void LaunchCompact(const CompactArgument& argument, int64_t requests, void* stream);

// Appends the tokens of a step to the histories of its requests.
struct AcceptArgument {
  RequestStore store;
  const StepSpan* spans;
  const int32_t* ids;  // one a row; the first -1 ends those of a request
  bool goes_on_with_zero = false;
};
void LaunchAccept(const AcceptArgument& argument, int64_t requests, void* stream);

// Tokens that came from elsewhere, so many that they fit into an argument; and back again.
struct AppendArgument {
  static constexpr int kMost = 64;

  RequestStore store;
  int32_t slot;
  int32_t count;
  int32_t ids[kMost];
};
void LaunchAppend(const AppendArgument& argument, void* stream);
void LaunchRollback(const RequestStore& store, int32_t slot, int32_t count, void* stream);

}  // namespace sluice::cuda
