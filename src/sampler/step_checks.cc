// What a step may be given. Nothing has changed yet when one of these throws.
#include "sampler/draft_tree.h"
#include "sampler/sampler_impl.h"
#include "support/check.h"

namespace sluice {

const RequestState& Sampler::Impl::TakeIntoStep(RequestHandle request) {
  const RequestState& state = StateOf(request);
  Slot& slot = slots_[static_cast<size_t>(request.slot)];
  if (slot.last_step == steps_) {
    ThrowInvalid("requests", "a request that appears twice", "each request once a step");
  }
  slot.last_step = steps_;
  return state;
}

void Sampler::Impl::CheckStep(const StepInput& input, const StepOutput& output) {
  const int64_t vocab = options_.vocab;
  const int64_t words = BitmaskWords(vocab);
  CheckLogits("logits", input.logits);
  CheckInRange("logits.vocab", input.logits.vocab, vocab, vocab);
  CheckInRange("requests.size()", static_cast<int64_t>(input.requests.size()), 0,
               options_.max_requests);
  BeginStep();
  first_rows_.clear();
  int64_t rows = 0;
  for (const StepRequest& request : input.requests) {
    const SamplingParams& params = TakeIntoStep(request.request).params();
    first_rows_.push_back(rows);
    const int64_t drafts = static_cast<int64_t>(request.drafts.size());
    for (const int32_t draft : request.drafts) CheckInRange("drafts", draft, 0, vocab - 1);
    CheckParents(request, params.draft_mode);
    if (!request.bitmask.empty()) {
      CheckSize("bitmask", request.bitmask.size(), (drafts + 1) * words);
    }
    CheckInRange("forced", request.forced, -1, vocab - 1);
    if (request.draft_probabilities.data != nullptr) {
      if (request.draft_model.logits.data != nullptr) {
        ThrowInvalid("draft_probabilities", "given with draft_model", "at most one of the two");
      }
      CheckMatrix("draft_probabilities", "columns", request.draft_probabilities, kMaxVocab);
      CheckDType("draft_probabilities", request.draft_probabilities.dtype, DType::kF32);
      CheckInRange("draft_probabilities.rows", request.draft_probabilities.rows, drafts, drafts);
      CheckInRange("draft_probabilities.columns", request.draft_probabilities.columns, vocab,
                   vocab);
    }
    if (request.draft_model.logits.data != nullptr) {
      CheckLogits("draft_model.logits", request.draft_model.logits);
      CheckPerRow("draft_model.params", request.draft_model.params.size(), drafts);
      CheckInRange("draft_model.logits.rows", request.draft_model.logits.rows, drafts, drafts);
      CheckInRange("draft_model.logits.vocab", request.draft_model.logits.vocab, vocab, vocab);
      CheckSize("draft_cuts", request.draft_cuts.size(), drafts);
    }
    if (output.logprobs.width > 0 && params.logprobs.has_value()) {
      const int64_t listed = *params.logprobs < 0 ? vocab : *params.logprobs;
      if (output.logprobs.width < 1 + listed) {
        ThrowInvalid("logprobs.width", ToText(int64_t{output.logprobs.width}),
                     "at least 1 + the request's logprobs, " + ToText(1 + listed));
      }
    }
    rows += drafts + 1;
  }
  CheckInRange("logits.rows", input.logits.rows, rows, rows);
  CheckSize("tokens", output.tokens.size(), rows);
  CheckSize("emitted", output.emitted.size(), static_cast<int64_t>(input.requests.size()));
  CheckInRange("logprobs.width", output.logprobs.width, 0, vocab + 1);
  CheckSize("logprobs.ids", output.logprobs.ids.size(), rows * output.logprobs.width);
  CheckSize("logprobs.values", output.logprobs.values.size(), rows * output.logprobs.width);
  if (!output.kept.empty()) CheckSize("kept", output.kept.size(), rows * words);
  if (!output.masses.empty()) CheckSize("masses", output.masses.size(), rows);
  if (!output.path.empty()) CheckSize("path", output.path.size(), rows);
  if (output.adjusted.data != nullptr) {
    CheckLogits("adjusted", output.adjusted);
    CheckDType("adjusted", output.adjusted.dtype, DType::kF32);
    CheckInRange("adjusted.rows", output.adjusted.rows, rows, rows);
    CheckInRange("adjusted.vocab", output.adjusted.vocab, vocab, vocab);
  }
}

}  // namespace sluice
