// The input of a step of a DeviceSampler: its checks, the shape that chooses its graph, and the
// tables that its kernels read.
#include <algorithm>
#include <array>
#include <bit>

#include "sampler/device/device_sampler_impl.h"
#include "sampler/draft_tree.h"
#include "sampler/request_checks.h"
#include "semantics/row_status.h"
#include "semantics/rules.h"
#include "semantics/validate.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice::cuda {
namespace {

bool HasProcessed(uint8_t modes) {
  return (modes & (1u << static_cast<int>(LogprobMode::kProcessedLogprobs) |
                   1u << static_cast<int>(LogprobMode::kProcessedLogits))) != 0;
}

// Whether the first k of a row, a few hundred, decide its draw, or may.
bool IsDrawnFromTop(const SelectParams& params) {
  constexpr int32_t kMostTopK = 400;
  using semantics::Filter;
  constexpr semantics::RuleSet kCovered = semantics::Rules(
      Filter::kMinP, Filter::kTopK, Filter::kTopP, Filter::kMinPLast, Filter::kXtc);
  const semantics::RuleSet rules = semantics::RulesOf(params);
  if (Has(rules, Filter::kGreedy)) return true;
  return IsWithin(rules, kCovered) && Has(rules, Filter::kTopK) && params.top_k <= kMostTopK &&
         !IsJoint(rules, params.profile);
}

constexpr semantics::RuleSet kTypicalTopK =
    semantics::Rules(semantics::Filter::kTypical, semantics::Filter::kTopK);

// The rows of a request in a step that has trees.
void WriteTree(const StepRequest& request, const StepTables& tables, int32_t first_row) {
  const DraftTree tree(request);
  TreeRow* const trees = tables.trees + first_row;
  StepRow* const rows = tables.rows + first_row;
  for (int32_t d = 0; d <= tree.size(); ++d) {
    const uint64_t before = d == 0 ? 0 : trees[tree.Parent(d - 1)].before | uint64_t{1} << (d - 1);
    trees[d] = {before, d, tree.size() + 1};
    const int32_t child = tree.NextChild(d, 0);
    rows[d].depth = std::popcount(before);
    rows[d].draft = child == tree.size() ? -1 : request.drafts[static_cast<size_t>(child)];
  }
}

void WriteModel(const StepRequest& request, DraftModelRow* models) {
  const SelectInput& model = request.draft_model;
  for (int64_t i = 0; i < std::ssize(request.drafts); ++i) {
    const SelectParams& params = PerRow(model.params, i);
    const Cut& cut = request.draft_cuts[static_cast<size_t>(i)];
    const bool is_valid = semantics::AreValid(params, model.limits);
    models[i] = {model.logits.Row(i), params, cut, model.logits.dtype,
                 semantics::Worse(cut.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam)};
  }
}

}  // namespace

bool ChangesRows(const RequestRecord& record, std::span<const DeviceLogitsProcessor> processors) {
  const bool is_greedy = record.select.temperature == 0.0f;
  return std::ranges::any_of(processors, [&](const DeviceLogitsProcessor& processor) {
    return !(is_greedy && processor.argmax_invariant);
  });
}

int32_t MostTokens(const StepRequest& request) {
  if (request.parents.empty()) return RowsOf(request);
  const DraftTree tree(request);
  std::array<int32_t, kMostDrafts + 1> tokens = {1};  // of each node
  for (int32_t i = 0; i < tree.size(); ++i) {
    tokens[static_cast<size_t>(i) + 1] = tokens[static_cast<size_t>(tree.Parent(i))] + 1;
  }
  return *std::max_element(tokens.begin(), tokens.end());
}

void DeviceSampler::Impl::CheckRequest(const StepRequest& request, const Slot& slot,
                                       int device) const {
  const int64_t vocab = options_.vocab;
  const int64_t drafts = static_cast<int64_t>(request.drafts.size());
  CheckInRange("drafts.size()", drafts, 0, options_.max_drafts);
  CheckStepRequest(request, slot.record.draft_mode, vocab, DeviceKind::kCuda);
  if (!request.bitmask.empty()) {
    if (!options_.bitmasks) ThrowInvalid("bitmask", "given", "none: options.bitmasks is false");
    CheckSize("bitmask", request.bitmask.size(), (drafts + 1) * ((vocab + 31) / 32));
  }
  if (request.draft_model.logits.data != nullptr) {
    CheckInRange("draft_model.logits.device.index", request.draft_model.logits.device.index, device,
                 device);
  }
  if (request.draft_probabilities.data != nullptr) {
    CheckInRange("draft_probabilities.device.index", request.draft_probabilities.device.index,
                 device, device);
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
    if (slot.last_check == check) ThrowRequestTwice();
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
    const semantics::RuleSet rules = semantics::RulesOf(record.select);
    shape.has_typical = shape.has_typical || IsWithin(kTypicalTopK, rules);
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
    const RequestedLogprobs requested{record.has_logprobs, record.logprob_mode,
                                      static_cast<int16_t>(record.listed_logprobs)};
    for (int32_t d = 0; d < RowsOf(request); ++d, ++r) {
      tables.requested[r] = requested;
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
    if (tables.trees != nullptr) WriteTree(request, tables, tables.spans[q].first_row);
    if (tables.models != nullptr && request.draft_model.logits.data != nullptr) {
      WriteModel(request, tables.models + tables.spans[q].first_row);
    }
    for (const int32_t draft : request.drafts) tables.drafts[drafts++] = draft;
  }
  if (new_tables_ != tables_) {
    const Piece piece{buffers_.tables, new_tables_.data(), bytes};
    tables_.clear();  // the contents on the device are undefined when Send fails
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

}  // namespace sluice::cuda
