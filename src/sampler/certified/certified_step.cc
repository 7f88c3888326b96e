// The step of a Sampler's requests from a certified head: their masks are one bitmask, and what
// they change of single logits maps the intervals of these (semantics/adjust/token_adjust.h).
#include "sampler/certified/certified_draw.h"
#include "sampler/sampler_impl.h"
#include "support/check.h"

namespace sluice {

void Sampler::Impl::CheckStepFromHead(std::span<const RequestHandle> requests, int64_t rows,
                                      int64_t vocab) {
  CheckInRange("sampler.vocab", options_.vocab, vocab, vocab);
  CheckSize("requests", requests.size(), rows);
  BeginStep();
  for (const RequestHandle& request : requests) {
    if (!TakeIntoStep(request).RunsProcessors()) continue;
    ThrowInvalid("requests", "a request with a logits processor",
                 "requests with no processor that runs: processors need all logits");
  }
}

// The hidden states and the output have been checked.
CertifiedStats Sampler::Impl::StepFromHead(const CertifiedHead& head, const CertifiedInput& input,
                                           std::span<const RequestHandle> requests,
                                           const SampleOutput& output,
                                           std::span<CertifiedRow> results,
                                           const Execution& execution) {
  const int64_t vocab = head.head().weight.rows;
  CheckStepFromHead(requests, input.hidden.rows, vocab);
  CertifiedRows rows(head, input, results, execution,
                     CertifiedDraw::Bytes(vocab, execution.backend));
  for (const RequestHandle& request : requests) StateOf(request).Grow();
  const auto state_of = [&](int64_t r) -> RequestState& {
    return StateOf(requests[static_cast<size_t>(r)]);
  };
  const CertifiedDraw draw(options_.limits, output, vocab, execution.backend);
  const CertifiedStats stats = draw.Run(
      rows, execution.parallel,
      [&](int64_t r) {
        const RequestState& state = state_of(r);
        return RowDraw{state.select(), state.Key(), state.params().draw_method};
      },
      [&](int64_t r) {
        std::optional<semantics::AdjustInput> adjust;
        if (state_of(r).HasAdjustments()) adjust = state_of(r).Adjustments(nullptr);
        return adjust;
      });
  for (size_t i = 0; i < requests.size(); ++i) {
    const int32_t id = output.ids.empty() ? output.results[i].id : output.ids[i];
    if (id >= 0) StateOf(requests[i]).Accept(id);
  }
  return stats;
}

CertifiedStats Sampler::StepFromHead(const CertifiedHead& head, const CertifiedInput& input,
                                     std::span<const RequestHandle> requests,
                                     std::span<TokenResult> results, std::span<CertifiedRow> rows,
                                     const Execution& execution) {
  CheckHidden(head, input.hidden);
  CheckSize("results", results.size(), input.hidden.rows);
  return Get().StepFromHead(head, input, requests, {.results = results}, rows, execution);
}

CertifiedStats Sampler::StepIdsFromHead(const CertifiedHead& head, const CertifiedInput& input,
                                        std::span<const RequestHandle> requests,
                                        std::span<int32_t> ids, std::span<RowStatus> statuses,
                                        std::span<CertifiedRow> rows, const Execution& execution) {
  CheckHidden(head, input.hidden);
  CheckSize("ids", ids.size(), input.hidden.rows);
  if (!statuses.empty()) CheckSize("statuses", statuses.size(), input.hidden.rows);
  return Get().StepFromHead(head, input, requests, {.ids = ids, .statuses = statuses}, rows,
                            execution);
}

}  // namespace sluice
