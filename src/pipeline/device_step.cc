#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

#include "backend/row_launch.h"
#include "pipeline/device_sampler_impl.h"
#include "pipeline/draft_tree.h"
#include "pipeline/sample_adjusted.h"
#include "pipeline/sample_reported.h"
#include "semantics/row_status.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice::cuda {
namespace {

int32_t RowsOf(const StepRequest& request) {
  return 1 + static_cast<int32_t>(request.drafts.size());
}

bool HasProcessed(uint8_t modes) {
  return (modes & (1u << static_cast<int>(LogprobMode::kProcessedLogprobs) |
                   1u << static_cast<int>(LogprobMode::kProcessedLogits))) != 0;
}

// Whether a processor changes the request's rows.
bool ChangesRows(const RequestRecord& record, std::span<const DeviceLogitsProcessor> processors) {
  const bool is_greedy = record.select.temperature == 0.0f;
  return std::ranges::any_of(processors, [&](const DeviceLogitsProcessor& processor) {
    return !(is_greedy && processor.argmax_invariant);
  });
}

PatchArgument PatchOf(const DeviceBuffers& buffers, const StepShape& shape) {
  const LogitsView& logits = shape.logits;
  const StepTables tables = TablesOf(buffers, shape);
  return {.store = buffers.store,
          .rows = tables.rows,
          .trees = tables.trees,
          .drafts = tables.drafts,
          .bitmasks = buffers.bitmasks,
          .bitmask_words = static_cast<int32_t>((logits.vocab + 31) / 32),
          .params = buffers.params,
          .keys = buffers.keys,
          .patches = buffers.patches,
          .max_patch = buffers.max_patch,
          .ids = buffers.patch_ids,
          .items = buffers.patch_items,
          .endings = buffers.patch_endings,
          .values = buffers.patch_values,
          .logits = logits.data,
          .stride_bytes = logits.stride * static_cast<int64_t>(SizeOf(logits.dtype)),
          .dtype = logits.dtype};
}

// What a step may give of a request.
int32_t MostTokens(const StepRequest& request) {
  if (request.parents.empty()) return RowsOf(request);
  const DraftTree tree(request);
  std::array<int32_t, kMostDrafts + 1> tokens = {1};  // of each node
  for (int32_t i = 0; i < tree.size(); ++i) {
    tokens[static_cast<size_t>(i) + 1] = tokens[static_cast<size_t>(tree.Parent(i))] + 1;
  }
  return *std::max_element(tokens.begin(), tokens.end());
}

// The rows of a request in a step that has trees.
void TellTree(const StepRequest& request, const StepTables& tables, int32_t first_row) {
  const DraftTree tree(request);
  TreeRow* const trees = tables.trees + first_row;
  StepRow* const rows = tables.rows + first_row;
  for (int32_t d = 0; d <= tree.size(); ++d) {
    const uint64_t before = d == 0 ? 0 : trees[tree.Parent(d - 1)].before | uint64_t{1} << (d - 1);
    trees[d] = {before, d, tree.size() + 1};
    const int32_t child = tree.NextBehind(d, 0);
    rows[d].depth = std::popcount(before);
    rows[d].draft = child == tree.size() ? -1 : request.drafts[static_cast<size_t>(child)];
  }
}

void TellModel(const StepRequest& request, DraftModelRow* models) {
  const SelectInput& model = request.draft_model;
  for (int64_t i = 0; i < std::ssize(request.drafts); ++i) {
    const SelectParams& params = PerRow(model.params, i);
    const Cut& cut = request.draft_cuts[static_cast<size_t>(i)];
    const bool is_valid = semantics::AreValid(params, model.limits);
    models[i] = {model.logits.Row(i), params, cut, model.logits.dtype,
                 semantics::Worse(cut.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam)};
  }
}

// Whether the first k of a row, a few hundred, decide its draw, or may.
bool IsDrawnFromTop(const SelectParams& params) {
  constexpr int32_t kMostTopK = 400;
  if (params.temperature == 0.0f) return true;
  const bool is_joint = params.profile.top_k_top_p == TopKTopP::kJoint && params.top_p < 1.0f;
  return params.top_k > 0 && params.top_k <= kMostTopK && params.top_n_sigma == 0.0f &&
         params.typical_p == 1.0f && !is_joint;
}

// The mode that the draw reports in the same kernel: a raw one, alone, where nothing changes the
// rows or their tokens, the draw's lists have most of the report, and a block has a row for itself.
// (Elsewhere a kernel of its own reads the rows beside the draw: 16 us in place of 18 for 8 rows.)
std::optional<LogprobMode> ModeBesideDraw(const StepShape& shape) {
  if (shape.has_patches || shape.has_verdict || shape.has_wide || shape.processed_rows > 0)
    return std::nullopt;
  if (ShapeForRows(shape.output.rows).blocks > 1) return std::nullopt;
  for (const LogprobMode mode : {LogprobMode::kRawLogprobs, LogprobMode::kRawLogits}) {
    if (shape.modes == 1u << static_cast<int>(mode)) return mode;
  }
  return std::nullopt;
}

}  // namespace

void DeviceSampler::Impl::CheckRequest(const StepRequest& request, const Slot& slot,
                                       int device) const {
  const int64_t vocab = options_.vocab;
  const int64_t drafts = static_cast<int64_t>(request.drafts.size());
  CheckInRange("drafts.size()", drafts, 0, options_.max_drafts);
  for (const int32_t draft : request.drafts) CheckInRange("drafts", draft, 0, vocab - 1);
  CheckParents(request, slot.record.draft_mode);
  CheckInRange("forced", request.forced, -1, vocab - 1);
  if (!request.bitmask.empty()) {
    if (!options_.bitmasks) ThrowInvalid("bitmask", "given", "none: options.bitmasks is false");
    CheckSize("bitmask", request.bitmask.size(), (drafts + 1) * ((vocab + 31) / 32));
  }
  if (request.draft_model.logits.data != nullptr) {
    if (request.draft_probabilities.data != nullptr) {
      ThrowInvalid("draft_probabilities", "given beside draft_model", "at most one of the two");
    }
    const LogitsView& logits = request.draft_model.logits;
    CheckLogits("draft_model.logits", logits, DeviceKind::kCuda);
    CheckInRange("draft_model.logits.device.index", logits.device.index, device, device);
    CheckPerRow("draft_model.params", request.draft_model.params.size(), drafts);
    CheckInRange("draft_model.logits.rows", logits.rows, drafts, drafts);
    CheckInRange("draft_model.logits.vocab", logits.vocab, vocab, vocab);
    CheckSize("draft_cuts", request.draft_cuts.size(), drafts);
  }
  if (request.draft_probabilities.data != nullptr) {
    CheckMatrix("draft_probabilities", "columns", request.draft_probabilities, kMaxVocab,
                DeviceKind::kCuda);
    CheckInRange("draft_probabilities.device.index", request.draft_probabilities.device.index,
                 device, device);
    CheckDType("draft_probabilities", request.draft_probabilities.dtype, DType::kF32);
    CheckInRange("draft_probabilities.rows", request.draft_probabilities.rows, drafts, drafts);
    CheckInRange("draft_probabilities.columns", request.draft_probabilities.columns, vocab, vocab);
  }
  CheckRoom(slot, MostTokens(request), "tokens");
}

// Throws before anything has changed; answers which kernels the step needs.
StepShape DeviceSampler::Impl::CheckStep(const StepInput& input) {
  CheckRows(input.logits);
  CheckInRange("logits.vocab", input.logits.vocab, options_.vocab, options_.vocab);
  CheckInRange("requests.size()", static_cast<int64_t>(input.requests.size()), 0,
               options_.max_requests);
  const uint64_t check = ++checks_;
  StepShape shape;
  bool is_greedy = true;
  bool has_drafts = false;
  int64_t rows = 0;
  int64_t processed_rows = 0;
  for (const StepRequest& request : input.requests) {
    Slot& slot = SlotOf(request.request);
    if (slot.last_check == check) {
      ThrowInvalid("requests", "a request that appears twice", "each request once a step");
    }
    slot.last_check = check;
    CheckRequest(request, slot, input.logits.device.index);
    const RequestRecord& record = slot.record;
    const bool greedy = record.select.temperature == 0.0f;
    const bool is_processed = ChangesRows(record, slot.processors);
    shape.has_values =
        shape.has_values || record.has_patch || (request.forced >= 0 && !is_processed);
    shape.has_patches = shape.has_patches || shape.has_values || !request.bitmask.empty();
    is_greedy = is_greedy && greedy;
    has_drafts = has_drafts || !request.drafts.empty();
    const bool rejects =
        !request.drafts.empty() && !greedy && record.draft_mode == DraftMode::kReject;
    shape.rejects = shape.rejects || rejects;
    shape.has_models = shape.has_models || (rejects && request.draft_model.logits.data != nullptr);
    shape.output.has_path = shape.output.has_path || !request.parents.empty();
    const bool is_cdf = record.draw_method == DrawMethod::kCdf && !greedy;
    shape.draws_cdf = shape.draws_cdf || is_cdf;
    shape.draws_gumbel = shape.draws_gumbel || !is_cdf;
    shape.has_typical =
        shape.has_typical || (!greedy && record.select.typical_p < 1.0f && record.select.top_k > 0);
    shape.has_wide = shape.has_wide || !IsDrawnFromTop(record.select);
    if (record.has_logprobs) {
      shape.modes = static_cast<uint8_t>(shape.modes | 1u << static_cast<int>(record.logprob_mode));
      if (record.listed_logprobs > 0) shape.output.width = 1 + options_.max_logprobs;
    }
    rows += RowsOf(request);
    if (is_processed) processed_rows += RowsOf(request);
  }
  CheckInRange("processed rows", processed_rows, 0, options_.max_processed_rows);
  CheckInRange("logits.rows", input.logits.rows, rows, rows);
  CheckInRange("logits.rows", rows, 0, MostRows(options_));
  shape.logits = input.logits;
  shape.output.rows = rows;
  shape.output.requests = static_cast<int64_t>(input.requests.size());
  shape.output.has_logprobs = shape.modes != 0;
  shape.output.has_cuts = options_.cuts;
  shape.output.has_masses = options_.masses;
  shape.has_kept = options_.kept;
  shape.processed_rows = static_cast<int32_t>(processed_rows);
  shape.has_results = options_.cuts || options_.kept || options_.masses || shape.rejects ||
                      HasProcessed(shape.modes);
  shape.has_verdict = has_drafts || shape.has_results || (shape.draws_cdf && shape.draws_gumbel);
  shape.is_greedy =
      is_greedy && !shape.has_patches && !shape.has_results && shape.processed_rows == 0;
  // Looked at only where the draw may report: elsewhere it would make graphs that are alike.
  shape.has_wide = shape.has_wide && shape.modes != 0 && !shape.has_patches && !shape.has_verdict &&
                   shape.processed_rows == 0;
  return shape;
}

// What the kernels read of the step, on its way to the device unless it is there from the step
// before.
void DeviceSampler::Impl::SendTables(const StepInput& input, const StepShape& shape) {
  const size_t bytes = TablesOf(nullptr, shape).bytes;
  new_tables_.assign(bytes, std::byte{0});
  const StepTables tables = TablesOf(new_tables_.data(), shape);
  int32_t r = 0;
  int32_t drafts = 0;
  int32_t bitmasks = 0;
  int32_t processed = 0;
  for (size_t q = 0; q < input.requests.size(); ++q) {
    const StepRequest& request = input.requests[q];
    const int32_t index = request.request.slot;
    tables.spans[q] = {index, r, RowsOf(request)};
    const Slot& slot = slots_[static_cast<size_t>(index)];
    const RequestRecord& record = slot.record;
    const bool is_processed = ChangesRows(record, slot.processors);
    const LogprobWish wish{record.has_logprobs, record.logprob_mode,
                           static_cast<int16_t>(record.listed_logprobs)};
    for (int32_t d = 0; d < RowsOf(request); ++d, ++r) {
      tables.wishes[r] = wish;
      const bool is_last = d + 1 == RowsOf(request);
      const int32_t draft = is_last ? -1 : request.drafts[static_cast<size_t>(d)];
      const bool has_bitmask = !request.bitmask.empty();
      const int32_t forced = d == 0 ? request.forced : -1;
      tables.rows[r] = {.slot = index,
                        .first_draft = drafts,
                        .depth = d,
                        .draft = draft,
                        .forced = is_processed ? -1 : forced,
                        .bitmask = has_bitmask ? bitmasks++ : -1,
                        .processed = is_processed ? processed : -1};
      if (is_processed) {
        tables.processed_rows[processed] = r;
        tables.processed_forced[processed] = forced;
        ++processed;
      }
      tables.probabilities[r] = is_last || request.draft_probabilities.data == nullptr
                                    ? nullptr
                                    : static_cast<const float*>(request.draft_probabilities.Row(d));
    }
    if (tables.trees != nullptr) TellTree(request, tables, tables.spans[q].first_row);
    if (tables.models != nullptr && request.draft_model.logits.data != nullptr) {
      TellModel(request, tables.models + tables.spans[q].first_row);
    }
    for (const int32_t draft : request.drafts) tables.drafts[drafts++] = draft;
  }
  if (new_tables_ != tables_) {
    const Piece piece{buffers_.tables, new_tables_.data(), bytes};
    tables_.clear();  // nobody knows what is there when Send fails
    Send({&piece, 1});
    tables_.swap(new_tables_);
  }
  bitmasks_.clear();
  int32_t* to = buffers_.bitmasks;
  for (const StepRequest& request : input.requests) {
    bitmasks_.push_back({to, request.bitmask.data(), request.bitmask.size_bytes()});
    to += request.bitmask.size();
  }
  Send(bitmasks_);
}

void PrepareStep(const DeviceBuffers& buffers, const StepShape& shape, void* stream) {
  if (!shape.is_greedy) LaunchPrepare(PatchOf(buffers, shape), shape.output.rows, stream);
}

RowParams ParamsOf(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits) {
  const int64_t rows = shape.output.rows;
  RowParams params{{buffers.params, rows}, {buffers.keys, rows}, limits};
  if (shape.has_patches) params.patches = {buffers.patches, rows};
  return params;
}

// From the logits to a token a row.
void EnqueueDraws(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                  void* stream) {
  const int64_t rows = shape.output.rows;
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  const DeviceArray<int32_t> ids{outputs.ids, rows};
  const DeviceArray<RowStatus> statuses{outputs.statuses, rows};
  if (shape.is_greedy) {
    SampleIds(shape.logits, {{buffers.greedy_params, 1}, {buffers.greedy_key, 1}, limits},
              DrawMethod::kGumbel, ids, statuses, stream);
    return;
  }
  if (shape.has_values) LaunchApply(PatchOf(buffers, shape), rows, stream);
  const RowParams params = ParamsOf(buffers, shape, limits);
  const DrawMethod method = MethodOf(shape);
  const bool has_results = shape.has_results;
  if (shape.has_values || shape.has_typical) {
    SampleAdjusted(shape.logits, params, method,
                   {has_results ? buffers.results : nullptr, outputs.ids, outputs.statuses},
                   {.starts_early = shape.has_values, .has_typical = shape.has_typical}, stream);
  } else if (has_results) {
    Sample(shape.logits, params, method, {buffers.results, rows}, stream);
  } else {
    SampleIds(shape.logits, params, method, ids, statuses, stream);
  }
  if (!shape.draws_both()) return;
  if (has_results) {
    Sample(shape.logits, params, DrawMethod::kCdf, {buffers.cdf_results, rows}, stream);
  } else {
    SampleIds(shape.logits, params, DrawMethod::kCdf, {buffers.cdf_ids, rows},
              {buffers.cdf_statuses, rows}, stream);
  }
}

void EnqueueStep(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                 void* stream) {
  if (const auto mode = ModeBesideDraw(shape)) {
    RowParams params = ParamsOf(buffers, shape, limits);
    if (shape.is_greedy) params = {{buffers.greedy_params, 1}, {buffers.greedy_key, 1}, limits};
    const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
    SampleReported(shape.logits, params, MethodOf(shape), {nullptr, outputs.ids, outputs.statuses},
                   ReportOf(buffers, shape, *mode, limits), stream);
    return;
  }
  if (shape.part != StepPart::kBehindProcessors) EnqueueDraws(buffers, shape, limits, stream);
  if (shape.part == StepPart::kBeforeProcessors) {
    EnqueueWriteOut(buffers, shape, stream);
    return;
  }
  if (shape.part == StepPart::kBehindProcessors) {
    EnqueueProcessedDraws(buffers, shape, limits, stream);
  }
  const int64_t rows = shape.output.rows;
  const StepTables tables = TablesOf(buffers, shape);
  const StepOutputs outputs = OutputsOf(buffers.outputs, shape.output);
  const bool has_both = shape.draws_both();
  const bool has_results = shape.has_results;
  const bool has_trees = shape.output.has_path;
  if (shape.has_models) {
    LaunchDraftLaws(tables.models, buffers.laws, static_cast<int32_t>(shape.logits.vocab), rows,
                    stream);
  }
  if (shape.rejects) {
    auto* const launch = has_trees ? LaunchRejectTrees : LaunchReject;
    launch({.store = buffers.store,
            .rows = tables.rows,
            .trees = tables.trees,
            .drafts = tables.drafts,
            .logits = shape.logits.data,
            .stride_bytes = shape.logits.stride * static_cast<int64_t>(SizeOf(shape.logits.dtype)),
            .dtype = shape.logits.dtype,
            .vocab = static_cast<int32_t>(shape.logits.vocab),
            .params = buffers.params,
            .keys = buffers.keys,
            .patches = buffers.patches,
            .processed = buffers.processed.values,
            .processed_stride = buffers.processed.stride,
            .probabilities = tables.probabilities,
            .laws = shape.has_models ? buffers.laws : nullptr,
            .results = buffers.results,
            .accepted = buffers.accepted},
           rows, stream);
  }
  if (shape.has_verdict) {
    auto* const launch = has_trees ? LaunchTreeVerdict : LaunchVerdict;
    launch({.store = buffers.store,
            .rows = tables.rows,
            .trees = tables.trees,
            .drafts = tables.drafts,
            .spans = tables.spans,
            .requests = static_cast<int32_t>(shape.output.requests),
            .accepted = shape.rejects ? buffers.accepted : nullptr,
            .results = has_results ? buffers.results : nullptr,
            .cdf_results = has_both && has_results ? buffers.cdf_results : nullptr,
            .cdf_ids = has_both && !has_results ? buffers.cdf_ids : nullptr,
            .cdf_statuses = has_both && !has_results ? buffers.cdf_statuses : nullptr,
            .ids = outputs.ids,
            .statuses = outputs.statuses,
            .cuts = shape.output.has_cuts ? outputs.cuts : nullptr,
            .emitted = outputs.emitted,
            .path = has_trees ? outputs.path : nullptr},
           stream);
  }
  const bool is_behind_draw = shape.part == StepPart::kWhole && !shape.has_verdict && !has_both;
  EnqueueReports(buffers, shape, limits, is_behind_draw, stream);
  if (has_trees) {
    const int32_t words = static_cast<int32_t>((shape.logits.vocab + 31) / 32);
    LaunchCompact({.spans = tables.spans,
                   .path = outputs.path,
                   .ids = outputs.ids,
                   .statuses = outputs.statuses,
                   .cuts = shape.output.has_cuts ? outputs.cuts : nullptr,
                   .masses = shape.output.has_masses ? outputs.masses : nullptr,
                   .logprobs = shape.output.has_logprobs ? outputs.logprobs : nullptr,
                   .ranks = outputs.ranks,
                   .width = shape.output.has_logprobs ? shape.output.width : 0,
                   .list_ids = outputs.list_ids,
                   .list_values = outputs.list_values,
                   .kept_words = shape.has_kept ? words : 0,
                   .kept = buffers.kept},
                  shape.output.requests, stream);
  }
}

// The processors of the requests, in the order of both.
void DeviceSampler::Impl::RunProcessors(const StepInput& input, const StepShape& shape,
                                        void* stream) {
  float* values = buffers_.processed.values;
  const int32_t* drafts = TablesOf(buffers_, shape).drafts;
  for (const StepRequest& request : input.requests) {
    const int32_t index = request.request.slot;
    const Slot& slot = slots_[static_cast<size_t>(index)];
    const int32_t* own_drafts = drafts;
    drafts += request.drafts.size();
    if (!ChangesRows(slot.record, slot.processors)) continue;
    const bool is_greedy = slot.record.select.temperature == 0.0f;
    const int64_t stride = buffers_.processed.stride;
    const ProcessorRows rows{.logits = {values, RowsOf(request), options_.vocab, stride,
                                        DType::kF32, shape.logits.device},
                             .tokens = buffers_.store.TokensOf(index),
                             .token_count = &buffers_.store.progress[index].tokens,
                             .drafts = own_drafts,
                             .parents = request.parents,
                             .prompt_length = slot.record.prompt_length};
    for (const DeviceLogitsProcessor& processor : slot.processors) {
      if (is_greedy && processor.argmax_invariant) continue;
      processor.apply(processor.context, rows, stream);
    }
    values += rows.logits.rows * stride;
  }
}

// Captured once for each shape, while it is in use.
cudaGraphExec_t DeviceSampler::Impl::GraphOf(const StepShape& shape) {
  if (const Graph* graph = graphs_.Find(shape)) return *graph;
  RequireCuda(cudaStreamBeginCapture(captures_, cudaStreamCaptureModeThreadLocal), "graph");
  cudaGraph_t graph = nullptr;
  try {
    const auto stream = static_cast<cudaStream_t>(captures_);
    if (shape.source.enqueue != nullptr) {
      is_calling_back_ = true;
      shape.source.enqueue(shape.source.context, stream);
      is_calling_back_ = false;
    }
    EnqueueStep(buffers_, shape, options_.limits, stream);
  } catch (...) {
    is_calling_back_ = false;
    cudaStreamEndCapture(captures_, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    throw;
  }
  RequireCuda(cudaStreamEndCapture(captures_, &graph), "graph");
  const std::unique_ptr<CUgraph_st, void (*)(cudaGraph_t)> owner(
      graph, [](cudaGraph_t captured) { cudaGraphDestroy(captured); });
  return graphs_.Add(shape, Graph(graph));
}

StepHandle DeviceSampler::Impl::Step(DeviceSampler* sampler, const StepInput& input, void* stream,
                                     const LogitsSource& source) {
  CheckNotCalledBack();
  StepRecord& record = steps_kept_[(steps_ + 1) % kStepsKept];
  if (!record.is_read) {  // and never will be
    if (!record.copied.IsOver()) {
      ++waits_;
      record.copied.Await();
    }
    CountTokens(record);
  }
  const StepShape shape = CheckStep(input);
  const bool is_processed = shape.processed_rows > 0;
  StepShape first = shape, last = shape;
  first.source = source;
  if (is_processed) {
    first.part = StepPart::kBeforeProcessors;
    last.part = StepPart::kBehindProcessors;
  }
  const cudaGraphExec_t graph = shape.output.rows > 0 ? GraphOf(first) : nullptr;
  const cudaGraphExec_t behind = is_processed ? GraphOf(last) : nullptr;
  const uint64_t step = steps_ + 1;
  const cudaStream_t own = static_cast<cudaStream_t>(stream);
  const StepOutputs outputs = OutputsOf(buffers_.outputs, shape.output);
  StepHandle handle;
  handle.sampler_ = sampler;
  handle.step_ = step;
  handle.ids_ = {outputs.ids, shape.output.rows};
  handle.statuses_ = {outputs.statuses, shape.output.rows};
  if (shape.has_verdict) handle.emitted_ = {outputs.emitted, shape.output.requests};
  if (shape.has_kept) {
    handle.kept_ = {buffers_.kept, shape.output.rows * ((options_.vocab + 31) / 32)};
  }
  if (shape.output.has_path) handle.path_ = {outputs.path, shape.output.rows};
  handle.event_ = static_cast<cudaEvent_t>(record.done);
  handle.copied_ = static_cast<cudaEvent_t>(record.copied);

  if (has_failed_) {  // what was enqueued of that step has no event to wait for
    ++waits_;
    RequireCuda(cudaDeviceSynchronize(), "device");
  }
  // The number counts, and the record is this step's, only when all of it is enqueued.
  has_failed_ = true;
  record.step = 0;
  SendTables(input, shape);
  PrepareStep(buffers_, shape, static_cast<cudaStream_t>(changes_));
  changed_.Record(changes_);
  changed_.HoldBack(own);
  // What the step before gave lies where this one writes.
  const StepRecord& before = steps_kept_[steps_ % kStepsKept];
  if (before.step != 0) before.copied.HoldBack(own);
  if (graph != nullptr) RequireCuda(cudaGraphLaunch(graph, own), "graph");
  if (is_processed) {
    try {
      is_calling_back_ = true;
      RunProcessors(input, shape, stream);
      is_calling_back_ = false;
    } catch (...) {
      is_calling_back_ = false;
      // What was enqueued may still read requests: what changes them comes behind it.
      has_failed_ = cudaEventRecord(record.done, own) != cudaSuccess ||
                    cudaStreamWaitEvent(changes_, record.done, 0) != cudaSuccess;
      if (has_failed_) cudaGetLastError();
      throw;
    }
    RequireCuda(cudaGraphLaunch(behind, own), "graph");
  }
  record.done.Record(own);
  record.done.HoldBack(copies_);
  std::byte* answer = answers_.data() + (step % kStepsKept) * answer_bytes_;
  if (outputs.bytes > 0) {
    RequireCuda(
        cudaMemcpyAsync(answer, buffers_.outputs, outputs.bytes, cudaMemcpyDeviceToHost, copies_),
        "copy");
  }
  record.copied.Record(copies_);
  record.done.HoldBack(changes_);
  if (graph != nullptr) {  // last: nothing is accepted of a step that fails
    LaunchAccept(
        {.store = buffers_.store, .spans = TablesOf(buffers_, shape).spans, .ids = outputs.ids},
        shape.output.requests, static_cast<cudaStream_t>(changes_));
  }

  has_failed_ = false;
  steps_ = step;
  record.step = step;
  record.shape = shape;
  record.is_read = false;
  record.members.clear();
  for (const StepRequest& request : input.requests) {
    const int32_t most_tokens = MostTokens(request);
    Slot& slot = slots_[static_cast<size_t>(request.request.slot)];
    slot.unread += most_tokens;
    record.members.push_back({request.request.slot, slot.generation, RowsOf(request), most_tokens});
  }
  return handle;
}

// Behind its copy.
void DeviceSampler::Impl::CountTokens(StepRecord& record) {
  const StepOutputs outputs =
      OutputsOf(answers_.data() + (record.step % kStepsKept) * answer_bytes_, record.shape.output);
  record.is_read = true;
  int32_t r = 0;
  for (size_t q = 0; q < record.members.size(); ++q) {
    const Member& member = record.members[q];
    int32_t emitted = 0;
    while (emitted < member.rows && outputs.ids[r + emitted] >= 0) ++emitted;
    outputs.emitted[q] = emitted;
    r += member.rows;
    Slot& slot = slots_[static_cast<size_t>(member.slot)];
    if (slot.generation != member.generation) continue;
    slot.unread -= member.most_tokens;
    slot.tokens += emitted;
  }
}

DeviceStepResult DeviceSampler::Impl::Get(uint64_t step) {
  CheckNotCalledBack();
  StepRecord& record = steps_kept_[step % kStepsKept];
  if (record.step != step) {
    ThrowInvalid("step", ToText(static_cast<int64_t>(step)),
                 "one of the last " + ToText(int64_t{kStepsKept}) + ", up to " +
                     ToText(static_cast<int64_t>(steps_)));
  }
  record.copied.Await();
  const OutputShape& shape = record.shape.output;
  const StepOutputs outputs =
      OutputsOf(answers_.data() + (step % kStepsKept) * answer_bytes_, shape);
  if (!record.is_read) CountTokens(record);
  auto part = [](const auto* data, int64_t size) {
    return std::span(data, static_cast<size_t>(size));
  };
  DeviceStepResult result;
  result.ids = part(outputs.ids, shape.rows);
  result.statuses = part(outputs.statuses, shape.rows);
  result.emitted = part(outputs.emitted, shape.requests);
  if (shape.has_cuts) result.cuts = part(outputs.cuts, shape.rows);
  if (shape.has_masses) result.masses = part(outputs.masses, shape.rows);
  if (shape.has_path) result.path = part(outputs.path, shape.rows);
  if (shape.has_logprobs) {
    result.logprobs = part(outputs.logprobs, shape.rows);
    result.ranks = part(outputs.ranks, shape.rows);
    result.width = shape.width;
    result.list_ids = part(outputs.list_ids, shape.rows * shape.width);
    result.list_values = part(outputs.list_values, shape.rows * shape.width);
  }
  return result;
}

}  // namespace sluice::cuda
