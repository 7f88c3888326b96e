// The Sampler as an opaque handle.
#include "capi/sampler.h"

#include <utility>

#include "capi/convert.h"
#include "capi/guard.h"
#include "support/check.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

namespace {

StepRequest ToStepRequest(const sluice_step_request& c) {
  return {ToCpp(c.request),
          Elements("drafts", c.drafts, c.draft_count),
          Elements("parents", c.parents, c.parent_count),
          ToCpp(c.draft_probabilities),
          ToSelectInput("draft_model", c.draft_model),
          Structs("draft_cuts", c.draft_cuts, c.draft_cut_count),
          Elements("bitmask", c.bitmask, c.word_count),
          c.forced};
}

StepOutput ToStepOutput(const sluice_step_output& c) {
  return {
      Structs("tokens", c.tokens, c.token_count), Elements("emitted", c.emitted, c.emitted_count),
      ToLogprobLists("logprobs", c.logprobs),     Elements("kept", c.kept, c.kept_count),
      Structs("masses", c.masses, c.mass_count),  ToCpp(c.adjusted),
      Elements("path", c.path, c.path_count)};
}

}  // namespace

sluice_status sluice_sampler_create(const sluice_sampler_options* options,
                                    sluice_sampler** sampler) {
  return Guarded([&] {
    sluice_sampler*& result = Deref("sampler", sampler);
    result = nullptr;
    const sluice_sampler_options& c = Deref("options", options);
    CheckAbi("options", c.abi_version);
    result = new sluice_sampler(SamplerOptions{c.vocab, c.max_requests, ToCpp(c.limits),
                                               static_cast<Backend>(c.backend), ToCpp(c.parallel)});
  });
}

void sluice_sampler_destroy(sluice_sampler* sampler) { delete sampler; }

sluice_status sluice_sampler_add(sluice_sampler* sampler, const sluice_request* request,
                                 sluice_request_handle* handle) {
  return Guarded([&] {
    sluice_sampler& own = Deref("sampler", sampler);
    sluice_request_handle& result = Deref("handle", handle);
    const sluice_request& c = Deref("request", request);
    std::vector<sluice_logits_processor> copies;
    const std::vector<LogitsProcessor> processors =
        ToProcessors(c.processors, c.processor_count, copies);
    const RequestHandle added =
        own.sampler.Add({ToSamplingParams(c.params), Elements("prompt", c.prompt, c.prompt_count),
                         c.choice, c.max_new_tokens, processors});
    own.processors[static_cast<size_t>(added.slot)] = std::move(copies);  // the elements stay put
    result = std::bit_cast<sluice_request_handle>(added);
  });
}

sluice_status sluice_sampler_remove(sluice_sampler* sampler, sluice_request_handle handle) {
  return Guarded([&] {
    sluice_sampler& own = Deref("sampler", sampler);
    own.sampler.Remove(ToCpp(handle));
    own.processors[static_cast<size_t>(handle.slot)] = {};
  });
}

sluice_status sluice_sampler_free_slots(const sluice_sampler* sampler, int32_t* slots) {
  return Guarded([&] {
    const sluice_sampler& own = Deref("sampler", sampler);
    Deref("slots", slots) = own.sampler.FreeSlots();
  });
}

sluice_status sluice_sampler_seed(const sluice_sampler* sampler, sluice_request_handle handle,
                                  uint64_t* seed) {
  return Guarded([&] {
    const sluice_sampler& own = Deref("sampler", sampler);
    Deref("seed", seed) = own.sampler.Seed(ToCpp(handle));
  });
}

sluice_status sluice_sampler_tokens(const sluice_sampler* sampler, sluice_request_handle handle,
                                    const int32_t** tokens, size_t* count) {
  return Guarded([&] {
    const sluice_sampler& own = Deref("sampler", sampler);
    const int32_t*& data = Deref("tokens", tokens);
    size_t& size = Deref("count", count);
    const std::span<const int32_t> all = own.sampler.Tokens(ToCpp(handle));
    data = all.data();
    size = all.size();
  });
}

sluice_status sluice_sampler_prompt_length(const sluice_sampler* sampler,
                                           sluice_request_handle handle, int64_t* length) {
  return Guarded([&] {
    const sluice_sampler& own = Deref("sampler", sampler);
    Deref("length", length) = own.sampler.PromptLength(ToCpp(handle));
  });
}

sluice_status sluice_sampler_step(sluice_sampler* sampler, const sluice_step_input* input,
                                  const sluice_step_output* output) {
  return Guarded([&] {
    sluice_sampler& own = Deref("sampler", sampler);
    const sluice_step_input& in = Deref("input", input);
    const sluice_step_output& out = Deref("output", output);
    // As Step itself would say, but before there are more of them than memory was taken for.
    if (in.request_count > static_cast<size_t>(own.max_requests)) {
      CheckInRange("requests.size()", static_cast<int64_t>(in.request_count), 0, own.max_requests);
    }
    if (in.requests == nullptr && in.request_count > 0) {
      ThrowNull("requests", "a pointer to the elements");
    }
    own.step_requests.clear();
    for (size_t i = 0; i < in.request_count; ++i) {
      own.step_requests.push_back(ToStepRequest(in.requests[i]));
    }
    own.sampler.Step({ToCpp(in.logits), own.step_requests}, ToStepOutput(out));
  });
}

sluice_status sluice_sampler_accept(sluice_sampler* sampler, sluice_request_handle handle,
                                    const int32_t* tokens, size_t token_count) {
  return Guarded([&] {
    sluice_sampler& own = Deref("sampler", sampler);
    own.sampler.Accept(ToCpp(handle), Elements("tokens", tokens, token_count));
  });
}

sluice_status sluice_sampler_rollback(sluice_sampler* sampler, sluice_request_handle handle,
                                      int64_t count) {
  return Guarded([&] { Deref("sampler", sampler).sampler.Rollback(ToCpp(handle), count); });
}
