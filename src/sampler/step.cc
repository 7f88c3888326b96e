#include <algorithm>
#include <limits>

#include "sampler/draft_tree.h"
#include "sampler/sample_row.h"
#include "sampler/sampler_impl.h"
#include "semantics/cut.h"
#include "semantics/temperature.h"
#include "support/float_environment.h"
#include "support/rows.h"

namespace sluice {

void Sampler::Impl::Step(const StepInput& input, const StepOutput& output) {
  CheckStep(input, output);
  std::fill(output.emitted.begin(), output.emitted.end(), 0);
  std::fill(output.tokens.begin(), output.tokens.end(), TokenResult{});
  std::fill(output.path.begin(), output.path.end(), -1);
  std::fill(output.masses.begin(), output.masses.end(), CutMass{});
  for (Worker& worker : workers_) worker.error = nullptr;
  ForEachRow(options_.parallel, static_cast<int64_t>(input.requests.size()),
             [&](int64_t index, int w) {
               Worker& worker = workers_[static_cast<size_t>(w)];
               try {
                 const size_t i = static_cast<size_t>(index);
                 StepRequestRows(input, output, i, first_rows_[i], worker);
               } catch (...) {  // of a user's processor: it must not cross the parallel-for
                 if (worker.error && worker.error_index < index) return;
                 worker.error = std::current_exception();
                 worker.error_index = index;
               }
             });
  const Worker* first = nullptr;
  for (const Worker& worker : workers_) {
    if (!worker.error) continue;
    if (first == nullptr || worker.error_index < first->error_index) first = &worker;
  }
  if (first != nullptr) std::rethrow_exception(first->error);
}

void Sampler::Impl::StepRequestRows(const StepInput& input, const StepOutput& output, size_t index,
                                    int64_t first_row, Worker& worker) {
  const StepRequest& request = input.requests[index];
  RequestState& state = StateOf(request.request);
  const Execution serial{options_.backend, {}, worker.workspace};
  const int64_t rows = static_cast<int64_t>(request.drafts.size()) + 1;
  int32_t node = 0;  // of the tree of drafts; -1: after the last token
  for (int64_t n = 0; n < rows; ++n) {
    const int64_t r = first_row + n;
    TokenResult& result = output.tokens[static_cast<size_t>(r)];
    const int64_t raw_row = node < 0 ? r : first_row + node;
    LogitsView raw = input.logits;
    raw.data = input.logits.Row(raw_row);
    raw.rows = 1;
    const NoiseKey key = state.Key();
    SelectInput row{raw, {&state.select(), 1}, {&key, 1}, options_.limits};
    if (node >= 0) {
      row.logits =
          AdjustedRow(raw, state, request, node, output.adjusted.data != nullptr, worker.values);
      if (!output.path.empty()) output.path[static_cast<size_t>(r)] = node;
      CutMass* const mass =
          output.masses.empty() ? nullptr : &output.masses[static_cast<size_t>(r)];
      node = DrawRow(row, request, state, node, mass, worker, result);
    }
    Report(raw, row, state, output, r, raw_row, serial);
    if (result.id < 0) continue;
    state.Accept(result.id);
    ++output.emitted[index];
  }
}

// The row after stages 3 to 9: the caller's own memory where nothing changes it.
LogitsView Sampler::Impl::AdjustedRow(const LogitsView& raw, RequestState& state,
                                      const StepRequest& request, int64_t node, bool must_copy,
                                      std::span<float> values) const {
  const int32_t* bitmask = request.bitmask.empty()
                               ? nullptr
                               : request.bitmask.data() + node * BitmaskWords(options_.vocab);
  const int32_t forced = node == 0 ? request.forced : -1;
  if (!must_copy && bitmask == nullptr && forced < 0 && !state.HasAdjustments()) return raw;

  adjustments_.widen(raw.data, raw.dtype, values);
  adjustments_.adjust(values, state.Adjustments(bitmask));
  const FloatEnvironment environment;  // given back after what a processor may set
  for (const LogitsProcessor& processor : state.processors()) {
    if (processor.argmax_invariant && semantics::IsGreedy(state.select())) continue;
    processor.apply(processor.context, state.tokens(), state.prompt_length(), values);
  }
  if (forced >= 0) adjustments_.force(values, forced);
  return {values.data(), 1, raw.vocab, raw.vocab, DType::kF32, raw.device};
}

// Fills the result of one row, and its mass where it has a token; returns the node of the draft
// that it accepts, -1 for none.
int32_t Sampler::Impl::DrawRow(const SelectInput& row, const StepRequest& request,
                               const RequestState& state, int32_t node, CutMass* mass,
                               Worker& worker, TokenResult& result) const {
  const LogitsView& logits = row.logits;
  const RowRequest from{.row = {logits.data, logits.dtype, logits.vocab},
                        .params = row.params[0],
                        .key = row.keys[0],
                        .limits = row.limits,
                        .needs_masses = mass != nullptr};
  const auto note_mass = [&](const SelectedSet& selected) {
    if (mass != nullptr && result.id >= 0) *mass = selected.mass;
  };
  const DraftTree tree(request);
  int32_t draft = tree.NextChild(node, 0);
  if (draft == tree.size() || state.params().draft_mode == DraftMode::kMatch) {
    note_mass(SampleRow(from, state.params().draw_method, selection_, draws_,
                        worker.workspace.data(), result));
    draft = result.id < 0 ? tree.size() : tree.Find(node, result.id);
    return draft < tree.size() ? draft + 1 : -1;
  }
  const SelectedSet selected = selection_.select_row(from, worker.workspace.data());
  result.cut = selected.cut;
  result.status = result.cut.status;
  if (result.status != RowStatus::kOk) return -1;

  size_t count = 0;
  for (; draft < tree.size(); draft = tree.NextChild(node, draft + 1)) {
    Try& one = worker.tries[count];
    DraftToTry& to_verify = worker.to_verify[count++];
    one.node = draft + 1;
    to_verify = {request.drafts[static_cast<size_t>(draft)], {}};
    if (request.draft_probabilities.data != nullptr) {
      to_verify.source.probabilities =
          static_cast<const float*>(request.draft_probabilities.Row(draft));
    } else if (request.draft_model.logits.data != nullptr) {
      one.model = request.draft_model;
      one.model.params = {&PerRow(one.model.params, draft), 1};
      one.model.logits.data = request.draft_model.logits.Row(draft);
      one.model.logits.rows = 1;
      to_verify.source.model = &one.model;
      to_verify.source.cut = &request.draft_cuts[static_cast<size_t>(draft)];
    }
  }
  const Verdict verdict = draws_.verify(row, result.cut, std::span(worker.to_verify).first(count));
  result.id = verdict.id;
  result.status = verdict.status;
  if (result.status != RowStatus::kOk) result.cut = semantics::CutOfStatus(result.status);
  note_mass(selected);
  return verdict.accepted < 0 ? -1 : worker.tries[static_cast<size_t>(verdict.accepted)].node;
}

// What else is reported of a row: log-probabilities, kept set, adjusted values.
void Sampler::Impl::Report(const LogitsView& raw, const SelectInput& row, const RequestState& state,
                           const StepOutput& output, int64_t r, int64_t raw_row,
                           const Execution& serial) const {
  TokenResult& result = output.tokens[static_cast<size_t>(r)];
  const bool has_token = result.id >= 0;
  const SamplingParams& params = state.params();

  const int32_t width = output.logprobs.width;
  const auto ids =
      output.logprobs.ids.subspan(static_cast<size_t>(r * width), static_cast<size_t>(width));
  const auto values =
      output.logprobs.values.subspan(static_cast<size_t>(r * width), static_cast<size_t>(width));
  for (int32_t& id : ids) id = -1;
  for (float& value : values) value = std::numeric_limits<float>::quiet_NaN();
  if (has_token && params.logprobs.has_value()) {
    const bool raw_mode = params.logprob_mode == LogprobMode::kRawLogprobs ||
                          params.logprob_mode == LogprobMode::kRawLogits;
    const int64_t listed = *params.logprobs < 0 ? options_.vocab : *params.logprobs;
    const size_t own = width == 0 ? 0 : static_cast<size_t>(1 + listed);
    draws_.logprobs({raw_mode ? raw : row.logits, params.logprob_mode, row.params}, {&result, 1},
                    {static_cast<int32_t>(own), ids.first(own), values.first(own)}, serial);
  }

  if (!output.kept.empty()) {
    const size_t words = static_cast<size_t>(BitmaskWords(options_.vocab));
    Cut kept = result.cut;
    if (!has_token) kept.status = RowStatus::kEmptySupport;
    selection_.kept_bitmask(row.logits, {&kept, 1},
                            output.kept.subspan(static_cast<size_t>(r) * words, words), serial);
  }
  if (output.adjusted.data != nullptr && row.logits.data != raw.data) {
    const float* from = static_cast<const float*>(row.logits.data);
    std::copy(from, from + options_.vocab, static_cast<float*>(output.adjusted.Row(raw_row)));
  }
}

}  // namespace sluice
