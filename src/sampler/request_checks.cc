#include "sampler/request_checks.h"

#include <string>

#include "sampler/draft_tree.h"
#include "support/check.h"

namespace sluice {
namespace {

constexpr int64_t kMaxChoice = (int64_t{1} << 24) - 1;

}  // namespace

void CheckLimits(const Limits& limits) {
  if (limits.max_temperature > 0) return;
  ThrowInvalid("limits.max_temperature", ToText(static_cast<double>(limits.max_temperature)),
               "above 0");
}

void CheckNewRequest(const Request& request, int64_t vocab, const Limits& limits) {
  Validate(request.params, vocab, limits);
  for (const int32_t token : request.prompt) CheckInRange("prompt", token, 0, vocab - 1);
  CheckInRange("choice", request.choice, 0, kMaxChoice);
  CheckInRange("max_new_tokens", request.max_new_tokens, 0, INT32_MAX);
}

void CheckStepRequest(const StepRequest& request, DraftMode mode, int64_t vocab,
                      DeviceKind device) {
  const auto drafts = static_cast<int64_t>(request.drafts.size());
  for (const int32_t draft : request.drafts) CheckInRange("drafts", draft, 0, vocab - 1);
  CheckParents(request, mode);
  CheckInRange("forced", request.forced, -1, vocab - 1);
  const MatrixView& probabilities = request.draft_probabilities;
  const LogitsView& logits = request.draft_model.logits;
  if (probabilities.data != nullptr) {
    if (logits.data != nullptr) {
      ThrowInvalid("draft_probabilities", "given with draft_model", "at most one of the two");
    }
    CheckMatrix("draft_probabilities", "columns", probabilities, kMaxVocab, device);
    CheckDType("draft_probabilities", probabilities.dtype, DType::kF32);
    CheckInRange("draft_probabilities.rows", probabilities.rows, drafts, drafts);
    CheckInRange("draft_probabilities.columns", probabilities.columns, vocab, vocab);
  }
  if (logits.data != nullptr) {
    CheckLogits("draft_model.logits", logits, device);
    CheckPerRow("draft_model.params", request.draft_model.params.size(), drafts);
    CheckInRange("draft_model.logits.rows", logits.rows, drafts, drafts);
    CheckInRange("draft_model.logits.vocab", logits.vocab, vocab, vocab);
    CheckSize("draft_cuts", request.draft_cuts.size(), drafts);
  }
}

void ThrowAllSlotsTaken(int32_t max_requests) {
  throw Error(ErrorCode::kExhausted, "requests", ToText(int64_t{max_requests} + 1),
              std::string("at most max_requests, ")
                  .append(ToText(int64_t{max_requests}))
                  .append(", at a time"));
}

void ThrowRemovedRequest() {
  ThrowInvalid("request", "a handle of a request that was removed",
               "a handle that Add returned and Remove has not seen");
}

void ThrowRequestTwice() {
  ThrowInvalid("requests", "a request that appears twice", "each request once a step");
}

}  // namespace sluice
