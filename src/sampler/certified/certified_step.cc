// Draws of a Sampler's requests from a certified head: their masks are one bitmask, and what they
// change of single logits maps the intervals of these (semantics/token_adjust.h).
#include "sampler/certified/sample_question.h"
#include "sampler/sampler_impl.h"
#include "support/check.h"

namespace sluice {
namespace {

class StepQuestion : public SampleQuestion {
 public:
  StepQuestion(SamplerAccess::Impl& sampler, std::span<const RequestHandle> requests,
               const SampleOutput& output, Backend backend)
      : SampleQuestion(sampler.limits(), output, sampler.vocab(), backend),
        sampler_(sampler),
        requests_(requests) {}

  bool Adjusts(int64_t row, semantics::AdjustInput& adjust) override {
    RequestState& state = StateOf(row);
    if (!state.HasAdjustments()) return false;
    adjust = state.Adjustments(nullptr);
    return true;
  }

 private:
  RequestState& StateOf(int64_t row) const {
    return sampler_.StateOf(requests_[static_cast<size_t>(row)]);
  }
  RowDraw DrawOf(int64_t row) const override {
    const RequestState& state = StateOf(row);
    return {state.select(), state.Key(), state.params().draw_method};
  }

  SamplerAccess::Impl& sampler_;
  std::span<const RequestHandle> requests_;
};

void CheckRequests(SamplerAccess::Impl& sampler, std::span<const RequestHandle> requests,
                   int64_t rows, int64_t vocab) {
  CheckInRange("sampler.vocab", sampler.vocab(), vocab, vocab);
  CheckSize("requests", requests.size(), rows);
  sampler.BeginStep();
  for (const RequestHandle& request : requests) {
    if (!sampler.TakeIntoStep(request).RunsProcessors()) continue;
    ThrowInvalid("requests", "a request with a logits processor",
                 "requests whose processors do not run: those have to see all logits");
  }
}

// The hidden states and the output have been checked.
CertifiedStats RunStep(const CertifiedHead& head, const CertifiedInput& input, Sampler& sampler,
                       std::span<const RequestHandle> requests, const SampleOutput& output,
                       std::span<CertifiedRow> rows, const Execution& execution) {
  const int64_t vocab = head.head().weight.rows;
  SamplerAccess::Impl& impl = SamplerAccess::Get(sampler);
  CheckRequests(impl, requests, input.hidden.rows, vocab);
  for (const RequestHandle& request : requests) impl.StateOf(request).Grow();
  StepQuestion question(impl, requests, output, execution.backend);
  const CertifiedStats stats = RunCertifiedCall(head, input, question, rows, execution,
                                                SampleQuestion::Bytes(vocab, execution.backend));
  for (size_t i = 0; i < requests.size(); ++i) {
    const int32_t id = output.ids.empty() ? output.results[i].id : output.ids[i];
    if (id >= 0) impl.StateOf(requests[i]).Accept(id);
  }
  return stats;
}

}  // namespace

CertifiedStats CertifiedHead::Step(const CertifiedInput& input, Sampler& sampler,
                                   std::span<const RequestHandle> requests,
                                   std::span<TokenResult> results, std::span<CertifiedRow> rows,
                                   const Execution& execution) const {
  CheckHidden(*this, input.hidden);
  CheckSize("results", results.size(), input.hidden.rows);
  return RunStep(*this, input, sampler, requests, {.results = results}, rows, execution);
}

CertifiedStats CertifiedHead::StepIds(const CertifiedInput& input, Sampler& sampler,
                                      std::span<const RequestHandle> requests,
                                      std::span<int32_t> ids, std::span<RowStatus> statuses,
                                      std::span<CertifiedRow> rows,
                                      const Execution& execution) const {
  CheckHidden(*this, input.hidden);
  CheckSize("ids", ids.size(), input.hidden.rows);
  if (!statuses.empty()) CheckSize("statuses", statuses.size(), input.hidden.rows);
  return RunStep(*this, input, sampler, requests, {.ids = ids, .statuses = statuses}, rows,
                 execution);
}

}  // namespace sluice
