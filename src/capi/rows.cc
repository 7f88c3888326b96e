// Calls on rows: each turns its arguments into those of its C++ namesake.
#include "capi/convert.h"
#include "capi/guard.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

sluice_status sluice_select_workspace_bytes(const sluice_logits_view* logits,
                                            const sluice_execution* execution, size_t* bytes) {
  return Guarded([&] {
    size_t& result = Deref("bytes", bytes);
    result = SelectWorkspaceBytes(ToCpp(Deref("logits", logits)), ToExecution(execution));
  });
}

sluice_status sluice_select(const sluice_select_input* input, sluice_cut* cuts, size_t cut_count,
                            sluice_cut_mass* masses, size_t mass_count,
                            const sluice_execution* execution) {
  return Guarded([&] {
    Select(ToSelectInput("", Deref("input", input)), Structs("cuts", cuts, cut_count),
           Structs("masses", masses, mass_count), ToExecution(execution));
  });
}

sluice_status sluice_mask(const sluice_mutable_logits_view* logits, const sluice_cut* cuts,
                          size_t cut_count, const sluice_execution* execution) {
  return Guarded([&] {
    Mask(ToCpp(Deref("logits", logits)), Structs("cuts", cuts, cut_count), ToExecution(execution));
  });
}

sluice_status sluice_kept_bitmask(const sluice_logits_view* logits, const sluice_cut* cuts,
                                  size_t cut_count, int32_t* bitmask, size_t word_count,
                                  const sluice_execution* execution) {
  return Guarded([&] {
    KeptBitmask(ToCpp(Deref("logits", logits)), Structs("cuts", cuts, cut_count),
                Elements("bitmask", bitmask, word_count), ToExecution(execution));
  });
}

sluice_status sluice_collect(const sluice_select_input* input, const sluice_cut* cuts,
                             size_t cut_count, sluice_candidate_order order,
                             const sluice_candidates* candidates,
                             const sluice_execution* execution) {
  return Guarded([&] {
    const sluice_candidates& c = Deref("candidates", candidates);
    Collect(ToSelectInput("", Deref("input", input)), Structs("cuts", cuts, cut_count),
            static_cast<CandidateOrder>(order),
            {Elements("candidates.offsets", c.offsets, c.offset_count),
             Elements("candidates.ids", c.ids, c.id_count),
             Elements("candidates.logits", c.logits, c.logit_count),
             Elements("candidates.weights", c.weights, c.weight_count)},
            ToExecution(execution));
  });
}

sluice_status sluice_draw(const sluice_select_input* input, sluice_draw_method method,
                          const sluice_cut* cuts, size_t cut_count, sluice_token_result* results,
                          size_t result_count, const sluice_execution* execution) {
  return Guarded([&] {
    Draw(ToSelectInput("", Deref("input", input)), static_cast<DrawMethod>(method),
         Structs("cuts", cuts, cut_count), Structs("results", results, result_count),
         ToExecution(execution));
  });
}

sluice_status sluice_sample(const sluice_select_input* input, sluice_draw_method method,
                            sluice_token_result* results, size_t result_count,
                            const sluice_execution* execution) {
  return Guarded([&] {
    Sample(ToSelectInput("", Deref("input", input)), static_cast<DrawMethod>(method),
           Structs("results", results, result_count), ToExecution(execution));
  });
}

sluice_status sluice_logprobs(const sluice_logprob_input* input, sluice_token_result* results,
                              size_t result_count, const sluice_logprob_lists* lists,
                              const sluice_execution* execution) {
  return Guarded([&] {
    const sluice_logprob_input& c = Deref("input", input);
    Logprobs({ToCpp(c.logits), static_cast<LogprobMode>(c.mode),
              ToSelectParams("", c.params, c.param_count)},
             Structs("results", results, result_count),
             lists == nullptr ? LogprobLists{} : ToLogprobLists("lists", *lists),
             ToExecution(execution));
  });
}

sluice_status sluice_verify_workspace_bytes(const sluice_logits_view* logits,
                                            const sluice_execution* execution, size_t* bytes) {
  return Guarded([&] {
    size_t& result = Deref("bytes", bytes);
    result = VerifyWorkspaceBytes(ToCpp(Deref("logits", logits)), ToExecution(execution));
  });
}

sluice_status sluice_verify(const sluice_select_input* target, const sluice_drafts* drafts,
                            sluice_draft_mode mode, sluice_draw_method method,
                            sluice_token_result* results, size_t result_count, int32_t* emitted,
                            size_t emitted_count, const sluice_execution* execution) {
  return Guarded([&] {
    const sluice_drafts& c = Deref("drafts", drafts);
    Verify(ToSelectInput("target", Deref("target", target)),
           {Elements("drafts.first_row", c.first_row, c.first_row_count),
            Elements("drafts.ids", c.ids, c.id_count), ToCpp(c.probabilities),
            ToSelectInput("drafts.model", c.model),
            Structs("drafts.model_cuts", c.model_cuts, c.model_cut_count)},
           static_cast<DraftMode>(mode), static_cast<DrawMethod>(method),
           Structs("results", results, result_count), Elements("emitted", emitted, emitted_count),
           ToExecution(execution));
  });
}

namespace {

TopkInput ToTopkInput(const sluice_topk_input* input) {
  const sluice_topk_input& c = Deref("input", input);
  return {ToCpp(c.scores),
          c.k,
          Elements("lengths", c.lengths, c.length_count),
          c.next_n,
          Elements("hint", c.hint, c.hint_count),
          c.hint_columns,
          c.hint_shift,
          c.sorted,
          Elements("thresholds", c.thresholds, c.threshold_count)};
}

}  // namespace

sluice_status sluice_topk_workspace_bytes(const sluice_topk_input* input,
                                          const sluice_execution* execution, size_t* bytes) {
  return Guarded([&] {
    size_t& result = Deref("bytes", bytes);
    result = TopkWorkspaceBytes(ToTopkInput(input), ToExecution(execution));
  });
}

sluice_status sluice_topk(const sluice_topk_input* input, int32_t* indices, size_t index_count,
                          float* values, size_t value_count, sluice_row_status* statuses,
                          size_t status_count, const sluice_execution* execution) {
  static_assert(sizeof(RowStatus) == sizeof(sluice_row_status));
  return Guarded([&] {
    Elements("statuses", statuses, status_count);
    Topk(ToTopkInput(input), Elements("indices", indices, index_count),
         Elements("values", values, value_count),
         {reinterpret_cast<RowStatus*>(statuses), status_count}, ToExecution(execution));
  });
}

sluice_status sluice_project_workspace_bytes(const sluice_dense_head* head,
                                             const sluice_matrix_view* hidden,
                                             const sluice_execution* execution, size_t* bytes) {
  return Guarded([&] {
    size_t& result = Deref("bytes", bytes);
    result = ProjectWorkspaceBytes(ToDenseHead(head), ToCpp(Deref("hidden", hidden)),
                                   ToExecution(execution));
  });
}

sluice_status sluice_project(const sluice_dense_head* head, const sluice_matrix_view* hidden,
                             const int32_t* query_start_loc, size_t query_start_count,
                             const sluice_mutable_logits_view* logits,
                             const sluice_execution* execution) {
  return Guarded([&] {
    Project(ToDenseHead(head), ToCpp(Deref("hidden", hidden)),
            Elements("query_start_loc", query_start_loc, query_start_count),
            ToCpp(Deref("logits", logits)), ToExecution(execution));
  });
}
