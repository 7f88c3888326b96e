// The C++ interface once more, made of the C one: a test written for `sluice` runs over C when it
// calls `sluice::over_c` instead. A failing status is thrown as the Error that its parts make.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/as_c.h"

namespace sluice::over_c {

using test::AsC;
using test::DataAsC;

inline void Check(sluice_status status) {
  if (status == SLUICE_OK) return;
  EXPECT_LE(status, 99) << sluice_last_error();
  const Error error(static_cast<ErrorCode>(status - 1), sluice_last_error_parameter(),
                    sluice_last_error_value(), sluice_last_error_allowed());
  EXPECT_STREQ(sluice_last_error(), error.what());
  throw error;
}

inline Profile ProfileByName(const char* name) {
  sluice_profile profile;
  Check(sluice_profile_by_name(name, &profile));
  return AsC<Profile>(profile);
}
inline Backend BackendByName(const char* name) {
  sluice_backend backend;
  Check(sluice_backend_by_name(name, &backend));
  return static_cast<Backend>(backend);
}
inline void Validate(const SamplingParams& params, int64_t vocab, const Limits& limits = {}) {
  const test::CSamplingParams c(params);
  const auto c_limits = AsC<sluice_limits>(limits);
  Check(sluice_validate(&c.params, vocab, &c_limits));
}

inline size_t SelectWorkspaceBytes(const LogitsView& logits, const Execution& execution) {
  const auto c_logits = AsC<sluice_logits_view>(logits);
  const sluice_execution c_execution = AsC(execution);
  size_t bytes = 0;
  Check(sluice_select_workspace_bytes(&c_logits, &c_execution, &bytes));
  return bytes;
}
inline size_t VerifyWorkspaceBytes(const LogitsView& logits, const Execution& execution) {
  const auto c_logits = AsC<sluice_logits_view>(logits);
  const sluice_execution c_execution = AsC(execution);
  size_t bytes = 0;
  Check(sluice_verify_workspace_bytes(&c_logits, &c_execution, &bytes));
  return bytes;
}

inline void Select(const SelectInput& input, std::span<Cut> cuts, std::span<CutMass> masses,
                   const Execution& execution) {
  const sluice_select_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_select(&c, DataAsC<sluice_cut>(cuts), cuts.size(), DataAsC<sluice_cut_mass>(masses),
                      masses.size(), &c_execution));
}
inline void Mask(const MutableLogitsView& logits, std::span<const Cut> cuts,
                 const Execution& execution) {
  const auto c = AsC<sluice_mutable_logits_view>(logits);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_mask(&c, DataAsC<sluice_cut>(cuts), cuts.size(), &c_execution));
}
inline void KeptBitmask(const LogitsView& logits, std::span<const Cut> cuts,
                        std::span<int32_t> bitmask, const Execution& execution) {
  const auto c = AsC<sluice_logits_view>(logits);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_kept_bitmask(&c, DataAsC<sluice_cut>(cuts), cuts.size(), bitmask.data(),
                            bitmask.size(), &c_execution));
}
inline void Collect(const SelectInput& input, std::span<const Cut> cuts, CandidateOrder order,
                    const Candidates& out, const Execution& execution) {
  const sluice_select_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  const sluice_candidates candidates = {out.offsets.data(), out.offsets.size(), out.ids.data(),
                                        out.ids.size(),     out.logits.data(),  out.logits.size(),
                                        out.weights.data(), out.weights.size()};
  Check(sluice_collect(&c, DataAsC<sluice_cut>(cuts), cuts.size(),
                       static_cast<sluice_candidate_order>(order), &candidates, &c_execution));
}
inline void Draw(const SelectInput& input, DrawMethod method, std::span<const Cut> cuts,
                 std::span<TokenResult> results, const Execution& execution) {
  const sluice_select_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_draw(&c, static_cast<sluice_draw_method>(method), DataAsC<sluice_cut>(cuts),
                    cuts.size(), DataAsC<sluice_token_result>(results), results.size(),
                    &c_execution));
}
inline void Sample(const SelectInput& input, DrawMethod method, std::span<TokenResult> results,
                   const Execution& execution) {
  const sluice_select_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_sample(&c, static_cast<sluice_draw_method>(method),
                      DataAsC<sluice_token_result>(results), results.size(), &c_execution));
}
inline void Logprobs(const LogprobInput& input, std::span<TokenResult> results,
                     const LogprobLists& lists, const Execution& execution) {
  const sluice_logprob_input c = {AsC<sluice_logits_view>(input.logits),
                                  static_cast<sluice_logprob_mode>(input.mode),
                                  DataAsC<sluice_select_params>(input.params), input.params.size()};
  const sluice_logprob_lists c_lists = AsC(lists);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_logprobs(&c, DataAsC<sluice_token_result>(results), results.size(), &c_lists,
                        &c_execution));
}
inline void Verify(const SelectInput& target, const Drafts& drafts, DraftMode mode,
                   DrawMethod method, std::span<TokenResult> results, std::span<int32_t> emitted,
                   const Execution& execution) {
  const sluice_select_input c = AsC(target);
  const sluice_drafts c_drafts = AsC(drafts);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_verify(&c, &c_drafts, static_cast<sluice_draft_mode>(mode),
                      static_cast<sluice_draw_method>(method),
                      DataAsC<sluice_token_result>(results), results.size(), emitted.data(),
                      emitted.size(), &c_execution));
}
inline void Topk(const TopkInput& input, std::span<int32_t> indices, std::span<float> values,
                 std::span<RowStatus> statuses, const Execution& execution) {
  const sluice_topk_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_topk(&c, indices.data(), indices.size(), values.data(), values.size(),
                    DataAsC<sluice_row_status>(statuses), statuses.size(), &c_execution));
}
inline void Project(const DenseHead& head, const MatrixView& hidden,
                    std::span<const int32_t> query_start_loc, const MutableLogitsView& logits,
                    const Execution& execution) {
  const sluice_dense_head c = {AsC<sluice_matrix_view>(head.weight), head.bias.data(),
                               head.bias.size()};
  const auto c_hidden = AsC<sluice_matrix_view>(hidden);
  const auto c_logits = AsC<sluice_mutable_logits_view>(logits);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_project(&c, &c_hidden, query_start_loc.data(), query_start_loc.size(), &c_logits,
                       &c_execution));
}
inline void SelectShards(const ShardInput& input, std::span<Cut> cuts, const Execution& execution) {
  const sluice_shard_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_select_shards(&c, DataAsC<sluice_cut>(cuts), cuts.size(), &c_execution));
}
inline Cut ShardCut(const Cut& cut, int64_t ties_before_upper, int64_t ties_before_lower) {
  const auto c = AsC<sluice_cut>(cut);
  sluice_cut part;
  Check(sluice_shard_cut(&c, ties_before_upper, ties_before_lower, &part));
  return AsC<Cut>(part);
}
inline void SampleShards(const ShardInput& input, DrawMethod method, std::span<TokenResult> results,
                         const Execution& execution) {
  const sluice_shard_input c = AsC(input);
  const sluice_execution c_execution = AsC(execution);
  Check(sluice_sample_shards(&c, static_cast<sluice_draw_method>(method),
                             DataAsC<sluice_token_result>(results), results.size(), &c_execution));
}

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) {
    sluice_sampler_options c;
    sluice_sampler_options_init(&c);
    c.vocab = options.vocab;
    c.max_requests = options.max_requests;
    c.limits = AsC<sluice_limits>(options.limits);
    c.backend = static_cast<sluice_backend>(options.backend);
    c.parallel = AsC<sluice_parallel_for>(options.parallel);
    Check(sluice_sampler_create(&c, &sampler_));
  }
  ~Sampler() { sluice_sampler_destroy(sampler_); }
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Its processors are called where they lie: they outlive the request.
  RequestHandle Add(const Request& request) {
    const test::CSamplingParams params(request.params);
    std::vector<sluice_logits_processor> processors;
    for (const LogitsProcessor& processor : request.processors) {
      processors.push_back({const_cast<LogitsProcessor*>(&processor),
                            processor.apply == nullptr ? nullptr : &Apply,
                            processor.argmax_invariant});
    }
    sluice_request c;
    sluice_request_init(&c);
    c.params = params.params;
    c.prompt = request.prompt.data();
    c.prompt_count = request.prompt.size();
    c.choice = request.choice;
    c.max_new_tokens = request.max_new_tokens;
    c.processors = processors.data();
    c.processor_count = processors.size();
    sluice_request_handle handle;
    Check(sluice_sampler_add(sampler_, &c, &handle));
    return AsC<RequestHandle>(handle);
  }
  void Remove(RequestHandle request) { Check(sluice_sampler_remove(sampler_, C(request))); }
  int32_t FreeSlots() const {
    int32_t slots = 0;
    Check(sluice_sampler_free_slots(sampler_, &slots));
    return slots;
  }
  uint64_t Seed(RequestHandle request) const {
    uint64_t seed = 0;
    Check(sluice_sampler_seed(sampler_, C(request), &seed));
    return seed;
  }
  std::span<const int32_t> Tokens(RequestHandle request) const {
    const int32_t* tokens = nullptr;
    size_t count = 0;
    Check(sluice_sampler_tokens(sampler_, C(request), &tokens, &count));
    return {tokens, count};
  }
  int64_t PromptLength(RequestHandle request) const {
    int64_t length = 0;
    Check(sluice_sampler_prompt_length(sampler_, C(request), &length));
    return length;
  }
  void Accept(RequestHandle request, std::span<const int32_t> tokens) {
    Check(sluice_sampler_accept(sampler_, C(request), tokens.data(), tokens.size()));
  }
  void Rollback(RequestHandle request, int64_t count) {
    Check(sluice_sampler_rollback(sampler_, C(request), count));
  }
  void Step(const StepInput& input, const StepOutput& output) {
    std::vector<sluice_step_request> requests;
    for (const StepRequest& from : input.requests) {
      sluice_step_request& c = requests.emplace_back();
      sluice_step_request_init(&c);
      c.request = C(from.request);
      c.drafts = from.drafts.data();
      c.draft_count = from.drafts.size();
      c.parents = from.parents.data();
      c.parent_count = from.parents.size();
      c.draft_probabilities = AsC<sluice_matrix_view>(from.draft_probabilities);
      c.draft_model = AsC(from.draft_model);
      c.draft_cuts = DataAsC<sluice_cut>(from.draft_cuts);
      c.draft_cut_count = from.draft_cuts.size();
      c.bitmask = from.bitmask.data();
      c.word_count = from.bitmask.size();
      c.forced = from.forced;
    }
    const sluice_step_input c_input = {AsC<sluice_logits_view>(input.logits), requests.data(),
                                       requests.size()};
    sluice_step_output c = {};
    c.tokens = DataAsC<sluice_token_result>(output.tokens);
    c.token_count = output.tokens.size();
    c.emitted = output.emitted.data();
    c.emitted_count = output.emitted.size();
    c.logprobs = AsC(output.logprobs);
    c.kept = output.kept.data();
    c.kept_count = output.kept.size();
    c.masses = DataAsC<sluice_cut_mass>(output.masses);
    c.mass_count = output.masses.size();
    c.adjusted = AsC<sluice_mutable_logits_view>(output.adjusted);
    c.path = output.path.data();
    c.path_count = output.path.size();
    Check(sluice_sampler_step(sampler_, &c_input, &c));
  }

 private:
  static sluice_request_handle C(RequestHandle request) {
    return AsC<sluice_request_handle>(request);
  }
  static int Apply(void* context, const int32_t* tokens, size_t count, size_t prompt_length,
                   float* logits, size_t vocab) {
    const auto& processor = *static_cast<const LogitsProcessor*>(context);
    processor.apply(processor.context, {tokens, count}, prompt_length, {logits, vocab});
    return 0;
  }

  sluice_sampler* sampler_ = nullptr;
};

}  // namespace sluice::over_c
