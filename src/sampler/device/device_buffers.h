// Where everything of a DeviceSampler lies in its one block of device memory.
#pragma once

#include <cstddef>

#include "draw/step_logprobs.h"
#include "sampler/device/device_kernels.h"
#include "sluice/cuda/sampler.hpp"

namespace sluice::cuda {

// Hands out consecutive parts of a block, or of none, to learn how large it has to be.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <typename T>
  T* Take(int64_t count) {
    constexpr size_t kAlignment = 256;  // so that rows of words can be loaded as vectors
    used_ = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += static_cast<size_t>(count) * sizeof(T);
    return part;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// What the host passes of a step, in one piece.
struct StepTables {
  StepRow* rows;
  StepSpan* spans;
  int32_t* drafts;
  const float** probabilities;
  RequestedLogprobs* requested;
  TreeRow* trees;         // null: all drafts are chains
  DraftModelRow* models;  // null: no draft models
  // Of the rows that processors change: where they are, and what is forced after them or -1.
  int32_t* processed_rows;
  int32_t* processed_forced;
  size_t bytes;
};

// How large they are.
struct TableShape {
  int64_t rows = 0;
  int64_t requests = 0;
  bool has_trees = false;
  bool has_models = false;
  int64_t processed_rows = 0;
};

inline StepTables TablesOf(std::byte* base, const TableShape& shape) {
  Carver carver(base);
  StepTables tables;
  tables.rows = carver.Take<StepRow>(shape.rows);
  tables.spans = carver.Take<StepSpan>(shape.requests);
  tables.drafts = carver.Take<int32_t>(shape.rows);
  tables.probabilities = carver.Take<const float*>(shape.rows);
  tables.requested = carver.Take<RequestedLogprobs>(shape.rows);
  tables.trees = shape.has_trees ? carver.Take<TreeRow>(shape.rows) : nullptr;
  tables.models = shape.has_models ? carver.Take<DraftModelRow>(shape.rows) : nullptr;
  tables.processed_rows = carver.Take<int32_t>(shape.processed_rows);
  tables.processed_forced = carver.Take<int32_t>(shape.processed_rows);
  tables.bytes = carver.used();
  return tables;
}

// What a step gives, in one piece. What not every step gives comes last.
struct StepOutputs {
  int32_t* ids;
  RowStatus* statuses;
  int32_t* emitted;
  float* logprobs;
  int32_t* ranks;
  int32_t* list_ids;
  float* list_values;
  Cut* cuts;
  CutMass* masses;
  int32_t* path;
  size_t bytes;
};

struct OutputShape {
  int64_t rows = 0;
  int64_t requests = 0;
  bool has_logprobs = false;
  bool has_cuts = false;
  int32_t width = 0;
  bool has_masses = false;
  bool has_path = false;  // of trees of drafts

  friend bool operator==(const OutputShape&, const OutputShape&) = default;
};

inline StepOutputs OutputsOf(std::byte* base, const OutputShape& shape) {
  Carver carver(base);
  StepOutputs outputs;
  outputs.ids = carver.Take<int32_t>(shape.rows);
  outputs.statuses = carver.Take<RowStatus>(shape.rows);
  outputs.emitted = carver.Take<int32_t>(shape.requests);
  const int64_t with_logprobs = shape.has_logprobs ? shape.rows : 0;
  outputs.logprobs = carver.Take<float>(with_logprobs);
  outputs.ranks = carver.Take<int32_t>(with_logprobs);
  outputs.list_ids = carver.Take<int32_t>(with_logprobs * shape.width);
  outputs.list_values = carver.Take<float>(with_logprobs * shape.width);
  outputs.cuts = carver.Take<Cut>(shape.has_cuts ? shape.rows : 0);
  outputs.masses = carver.Take<CutMass>(shape.has_masses ? shape.rows : 0);
  outputs.path = carver.Take<int32_t>(shape.has_path ? shape.rows : 0);
  outputs.bytes = carver.used();
  return outputs;
}

// Of the rows that processors change, one after the other.
struct ProcessedBuffers {
  float* values;
  int64_t stride;
  SelectParams* params;
  NoiseKey* keys;
  TokenResult* results;
  Cut* cuts;  // of the masses
  CutMass* masses;
};

inline ProcessedBuffers ProcessedOf(Carver& carver, const DeviceSamplerOptions& options) {
  constexpr int64_t kAlignment = 64;  // of rows, in values: as of the whole
  const int64_t rows = options.max_processed_rows;
  const int64_t with_masses = options.masses ? rows : 0;
  ProcessedBuffers buffers;
  buffers.stride = (options.vocab + kAlignment - 1) / kAlignment * kAlignment;
  buffers.values = carver.Take<float>(rows * buffers.stride);
  buffers.params = carver.Take<SelectParams>(rows);
  buffers.keys = carver.Take<NoiseKey>(rows);
  buffers.results = carver.Take<TokenResult>(rows);
  buffers.cuts = carver.Take<Cut>(with_masses);
  buffers.masses = carver.Take<CutMass>(with_masses);
  return buffers;
}

struct DeviceBuffers {
  RequestStore store;
  int32_t max_patch;
  std::byte* tables;
  int32_t* bitmasks;
  SelectParams* params;
  NoiseKey* keys;
  RowPatch* patches;
  int32_t* patch_ids;
  float* patch_values;
  PatchItem* patch_items;
  uint32_t* patch_endings;
  TokenResult* results;
  TokenResult* cdf_results;
  int32_t* cdf_ids;
  RowStatus* cdf_statuses;
  int32_t* accepted;
  DraftDistribution* distributions;
  std::byte* outputs;
  int32_t* kept;
  Cut* mass_cuts;  // of the masses
  ProcessedBuffers processed;
  SelectParams* greedy_params;  // one, for batches of which all rows are greedy
  NoiseKey* greedy_key;
  size_t bytes;
};

inline int32_t MostRows(const DeviceSamplerOptions& options) {
  return options.max_rows > 0 ? options.max_rows : options.max_requests * (1 + options.max_drafts);
}
inline OutputShape LargestOutput(const DeviceSamplerOptions& options) {
  return {.rows = MostRows(options),
          .requests = options.max_requests,
          .has_logprobs = true,
          .has_cuts = options.cuts,
          .width = 1 + options.max_logprobs,
          .has_masses = options.masses,
          .has_path = options.max_drafts > 0};
}
inline size_t MostTableBytes(const DeviceSamplerOptions& options) {
  const bool has_drafts = options.max_drafts > 0;
  return TablesOf(nullptr, {.rows = MostRows(options),
                            .requests = options.max_requests,
                            .has_trees = has_drafts,
                            .has_models = has_drafts,
                            .processed_rows = options.max_processed_rows})
      .bytes;
}

inline DeviceBuffers BuffersOf(std::byte* base, const DeviceSamplerOptions& options) {
  Carver carver(base);
  DeviceBuffers buffers;
  const int64_t slots = options.max_requests;
  const int64_t rows = MostRows(options);
  RequestStore& store = buffers.store;
  store.max_tokens = options.max_tokens;
  store.max_watched = options.max_tokens + options.max_listed_ids;
  store.max_listed = 2 * options.max_listed_ids + 2;  // even: bias entries have two words
  store.records = carver.Take<RequestRecord>(slots);
  store.progress = carver.Take<RequestProgress>(slots);
  store.tokens = carver.Take<int32_t>(slots * store.max_tokens);
  store.watched = carver.Take<WatchedToken>(slots * store.max_watched);
  store.lists = carver.Take<int32_t>(slots * store.max_listed);
  buffers.max_patch = store.max_watched + options.max_drafts;
  buffers.tables = carver.Take<std::byte>(static_cast<int64_t>(MostTableBytes(options)));
  const int64_t words = (options.vocab + 31) / 32;
  buffers.bitmasks = carver.Take<int32_t>(options.bitmasks ? rows * words : 0);
  buffers.params = carver.Take<SelectParams>(rows);
  buffers.keys = carver.Take<NoiseKey>(rows);
  buffers.patches = carver.Take<RowPatch>(rows);
  buffers.patch_ids = carver.Take<int32_t>(rows * buffers.max_patch);
  buffers.patch_values = carver.Take<float>(rows * buffers.max_patch);
  buffers.patch_items = carver.Take<PatchItem>(rows * buffers.max_patch);
  buffers.patch_endings = carver.Take<uint32_t>(rows * buffers.max_patch);
  buffers.results = carver.Take<TokenResult>(rows);
  buffers.cdf_results = carver.Take<TokenResult>(rows);
  buffers.cdf_ids = carver.Take<int32_t>(rows);
  buffers.cdf_statuses = carver.Take<RowStatus>(rows);
  buffers.accepted = carver.Take<int32_t>(rows);
  buffers.distributions = carver.Take<DraftDistribution>(options.max_drafts > 0 ? rows : 0);
  buffers.outputs = carver.Take<std::byte>(
      static_cast<int64_t>(OutputsOf(nullptr, LargestOutput(options)).bytes));
  buffers.kept = carver.Take<int32_t>(options.kept ? rows * words : 0);
  buffers.mass_cuts = carver.Take<Cut>(options.masses ? rows : 0);
  buffers.processed = ProcessedOf(carver, options);
  buffers.greedy_params = carver.Take<SelectParams>(1);
  buffers.greedy_key = carver.Take<NoiseKey>(1);
  buffers.bytes = carver.used();
  return buffers;
}

}  // namespace sluice::cuda
