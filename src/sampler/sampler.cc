#include "sluice/sampler.hpp"

#include "sampler/request_checks.h"
#include "sampler/sampler_impl.h"
#include "support/check.h"
#include "support/random_seed.h"
#include "support/registry.h"
#include "support/rows.h"

namespace sluice {
namespace {

SamplerOptions Checked(SamplerOptions options) {
  CheckInRange("vocab", options.vocab, 1, kMaxVocab);
  CheckInRange("max_requests", options.max_requests, 1, 1 << 20);
  CheckInRange("parallel.workers", options.parallel.workers, 1, 1 << 16);
  CheckLimits(options.limits);
  options.backend = ResolveBackend(options.backend);
  return options;
}

}  // namespace

Sampler::Impl::Impl(const SamplerOptions& options)
    : options_(Checked(options)),
      adjustments_(AdjustTableFor(options_.backend)),
      selection_(SelectTableFor(options_.backend)),
      draws_(DrawTableFor(options_.backend)),
      row_workspace_(RoundUp(selection_.workspace_bytes(options.vocab))) {
  const size_t values_bytes = RoundUp(static_cast<size_t>(options.vocab) * sizeof(float));
  const size_t worker_bytes = values_bytes + row_workspace_;
  const size_t workers = static_cast<size_t>(options.parallel.workers);
  memory_.resize(workers * worker_bytes + kWorkspaceAlignment);
  const size_t misaligned = reinterpret_cast<uintptr_t>(memory_.data()) % kWorkspaceAlignment;
  std::byte* base = memory_.data() + (kWorkspaceAlignment - misaligned) % kWorkspaceAlignment;
  for (size_t w = 0; w < workers; ++w) {
    std::byte* own = base + w * worker_bytes;
    workers_.push_back({{reinterpret_cast<float*>(own), static_cast<size_t>(options.vocab)},
                        {own + values_bytes, row_workspace_},
                        nullptr,
                        0});
  }
  slots_.resize(static_cast<size_t>(options.max_requests));
  first_rows_.reserve(slots_.size());
  free_slots_.reserve(slots_.size());
  for (int32_t slot = options.max_requests - 1; slot >= 0; --slot) free_slots_.push_back(slot);
}

RequestHandle Sampler::Impl::Add(const Request& request) {
  CheckNewRequest(request, options_.vocab, options_.limits);
  for (const LogitsProcessor& processor : request.processors) {
    if (processor.apply == nullptr) ThrowInvalid("processors.apply", "null", "a function");
  }
  if (free_slots_.empty()) ThrowAllSlotsTaken(options_.max_requests);
  const int32_t slot = free_slots_.back();
  Slot& taken = slots_[static_cast<size_t>(slot)];
  taken.state.emplace(request, options_.vocab,
                      request.params.seed.has_value() ? *request.params.seed : RandomSeed());
  free_slots_.pop_back();
  return {slot, taken.generation};
}

void Sampler::Impl::Remove(RequestHandle request) {
  StateOf(request);
  Slot& slot = slots_[static_cast<size_t>(request.slot)];
  slot.state.reset();
  ++slot.generation;
  free_slots_.push_back(request.slot);
}

RequestState& Sampler::Impl::StateOf(RequestHandle request) {
  CheckInRange("request.slot", request.slot, 0, options_.max_requests - 1);
  Slot& slot = slots_[static_cast<size_t>(request.slot)];
  if (!slot.state.has_value() || slot.generation != request.generation) ThrowRemovedRequest();
  return *slot.state;
}

Sampler::Sampler(const SamplerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

Sampler::Impl& Sampler::Get() const {
  if (impl_ == nullptr) ThrowInvalid("sampler", "moved from", "one that has not been moved from");
  return *impl_;
}

RequestHandle Sampler::Add(const Request& request) { return Get().Add(request); }
void Sampler::Remove(RequestHandle request) { Get().Remove(request); }
int32_t Sampler::FreeSlots() const { return Get().FreeSlots(); }
uint64_t Sampler::Seed(RequestHandle request) const { return Get().StateOf(request).seed(); }
NoiseKey Sampler::Key(RequestHandle request) const { return Get().StateOf(request).Key(); }
std::span<const int32_t> Sampler::Tokens(RequestHandle request) const {
  return Get().StateOf(request).tokens();
}
int64_t Sampler::PromptLength(RequestHandle request) const {
  return static_cast<int64_t>(Get().StateOf(request).prompt_length());
}
void Sampler::Step(const StepInput& input, const StepOutput& output) { Get().Step(input, output); }

void Sampler::Accept(RequestHandle request, std::span<const int32_t> tokens) {
  RequestState& state = Get().StateOf(request);
  for (const int32_t token : tokens) CheckInRange("tokens", token, 0, impl_->vocab() - 1);
  for (const int32_t token : tokens) state.Accept(token);
}

void Sampler::Rollback(RequestHandle request, int64_t count) {
  RequestState& state = Get().StateOf(request);
  CheckInRange("count", count, 0, static_cast<int64_t>(state.output_length()));
  state.Rollback(static_cast<size_t>(count));
}

}  // namespace sluice
