/* Part of sluice.h: calls on rows of logits. None keeps anything or allocates.
 *
 * Each takes one sluice_select_params (and sluice_noise_key) for all rows or one a row. */
#pragma once

#include "sluice/c/params.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A kept set as two boundaries; see sluice::Cut. */
typedef struct SLUICE_ALIASED sluice_cut {
  float upper;
  float lower;
  int32_t ties_dropped;
  int32_t ties_kept;
  int32_t count; /* number of kept tokens */
  sluice_row_status status;
} sluice_cut;

/* The exact masses of a Cut; see sluice::CutMass. */
typedef struct SLUICE_ALIASED sluice_cut_mass {
  uint64_t kept;
  uint64_t total;
  uint64_t margin;
} sluice_cut_mass;

/* The result of sampling a row. */
typedef struct SLUICE_ALIASED sluice_token_result {
  int32_t id; /* -1 with a status, and for draft rows after a rejection */
  sluice_row_status status;
  float logprob; /* NaN if not requested */
  int32_t rank;  /* number of tokens with value >= the sampled one's; 0 if not requested */
  sluice_cut cut;
} sluice_token_result;

typedef struct sluice_select_input {
  sluice_logits_view logits;
  const sluice_select_params* params;
  size_t param_count;           /* 1, or one a row */
  const sluice_noise_key* keys; /* read by XTC and by draws; else there may be none */
  size_t key_count;
  sluice_limits limits;
} sluice_select_input;

SLUICE_INIT void sluice_select_input_init(sluice_select_input* input) {
  *input = SLUICE_ZERO(sluice_select_input);
  sluice_limits_init(&input->limits);
}

/* Bytes of workspace for the calls from here to sluice_logprobs, with the execution's backend and
 * workers; its workspace is not looked at. */
SLUICE_API sluice_status sluice_select_workspace_bytes(const sluice_logits_view* logits,
                                                       const sluice_execution* execution,
                                                       size_t* bytes);

/* cuts: one a row. masses: none, or one a row. */
SLUICE_API sluice_status sluice_select(const sluice_select_input* input, sluice_cut* cuts,
                                       size_t cut_count, sluice_cut_mass* masses, size_t mass_count,
                                       const sluice_execution* execution);

/* Writes -inf to the tokens that the row's Cut drops and leaves every other bit alone. Needs no
 * workspace. */
SLUICE_API sluice_status sluice_mask(const sluice_mutable_logits_view* logits,
                                     const sluice_cut* cuts, size_t cut_count,
                                     const sluice_execution* execution);

/* ceil(vocab / 32) words a row, bit i of word w is token 32 w + i. Needs no workspace. */
SLUICE_API sluice_status sluice_kept_bitmask(const sluice_logits_view* logits,
                                             const sluice_cut* cuts, size_t cut_count,
                                             int32_t* bitmask, size_t word_count,
                                             const sluice_execution* execution);

typedef uint8_t sluice_candidate_order;
enum { SLUICE_ORDER_BY_ID = 0, SLUICE_ORDER_BY_RANK = 1 };

/* The kept tokens of row r are written from element offsets[r] on; offsets are the running sum of
 * the Cuts' counts, starting with 0. Each of the outputs has offsets[rows] elements or none. */
typedef struct sluice_candidates {
  const int64_t* offsets;
  size_t offset_count; /* rows + 1 */
  int32_t* ids;
  size_t id_count;
  float* logits;
  size_t logit_count;
  uint64_t* weights; /* the row's maximum weighs 2^40 */
  size_t weight_count;
} sluice_candidates;

SLUICE_API sluice_status sluice_collect(const sluice_select_input* input, const sluice_cut* cuts,
                                        size_t cut_count, sluice_candidate_order order,
                                        const sluice_candidates* candidates,
                                        const sluice_execution* execution);

/* One token a row from its Cut; results: one a row. */
SLUICE_API sluice_status sluice_draw(const sluice_select_input* input, sluice_draw_method method,
                                     const sluice_cut* cuts, size_t cut_count,
                                     sluice_token_result* results, size_t result_count,
                                     const sluice_execution* execution);

/* sluice_select and sluice_draw in one call. */
SLUICE_API sluice_status sluice_sample(const sluice_select_input* input, sluice_draw_method method,
                                       sluice_token_result* results, size_t result_count,
                                       const sluice_execution* execution);

typedef struct sluice_logprob_input {
  sluice_logits_view logits; /* as the model gave them for raw modes, else the adjusted ones */
  sluice_logprob_mode mode;
  const sluice_select_params* params;
  size_t param_count;
} sluice_logprob_input;

/* width entries a row: the sampled token, then the most likely ones; see sluice::LogprobLists. */
typedef struct sluice_logprob_lists {
  int32_t width; /* 0: no lists; else 1 + the number of most likely tokens */
  int32_t* ids;
  size_t id_count;
  float* values;
  size_t value_count;
} sluice_logprob_lists;

/* Reads id, status and cut of each result and fills logprob and rank. lists: may be null. */
SLUICE_API sluice_status sluice_logprobs(const sluice_logprob_input* input,
                                         sluice_token_result* results, size_t result_count,
                                         const sluice_logprob_lists* lists,
                                         const sluice_execution* execution);

/* A request with n drafts owns n + 1 consecutive rows of the target's logits: row j is what the
 * target says after the first j drafts, the last row is the bonus row. */
typedef struct sluice_drafts {
  const int64_t* first_row; /* requests + 1 elements; request r owns the rows of [r, r + 1) */
  size_t first_row_count;
  const int32_t* ids; /* one a row; that of a bonus row is not read */
  size_t id_count;
  /* For SLUICE_DRAFT_REJECT, what the drafts were drawn from; at most one of the two. */
  sluice_matrix_view probabilities; /* fp32 */
  sluice_select_input model;
  const sluice_cut* model_cuts;
  size_t model_cut_count;
} sluice_drafts;

SLUICE_INIT void sluice_drafts_init(sluice_drafts* drafts) {
  *drafts = SLUICE_ZERO(sluice_drafts);
  sluice_select_input_init(&drafts->model);
}

SLUICE_API sluice_status sluice_verify_workspace_bytes(const sluice_logits_view* logits,
                                                       const sluice_execution* execution,
                                                       size_t* bytes);

/* results: one a row; the first emitted[r] rows of request r hold its tokens. */
SLUICE_API sluice_status sluice_verify(const sluice_select_input* target,
                                       const sluice_drafts* drafts, sluice_draft_mode mode,
                                       sluice_draw_method method, sluice_token_result* results,
                                       size_t result_count, int32_t* emitted, size_t emitted_count,
                                       const sluice_execution* execution);

/* The k largest of each row of scores; see sluice::TopkInput. */
typedef struct sluice_topk_input {
  sluice_logits_view scores;
  int32_t k;
  const int32_t* lengths; /* none, or one a request of next_n rows */
  size_t length_count;
  int32_t next_n;
  const int32_t* hint; /* none, or hint_columns a request; it changes the time, never the answer */
  size_t hint_count;
  int32_t hint_columns;
  int32_t hint_shift;
  bool sorted;       /* by the total order; else indices ascend */
  float* thresholds; /* none, or one a row, read and written again; at first NaN */
  size_t threshold_count;
} sluice_topk_input;

SLUICE_INIT void sluice_topk_input_init(sluice_topk_input* input) {
  *input = SLUICE_ZERO(sluice_topk_input);
  input->next_n = 1;
}

SLUICE_API sluice_status sluice_topk_workspace_bytes(const sluice_topk_input* input,
                                                     const sluice_execution* execution,
                                                     size_t* bytes);

/* indices: rows * k, -1 after the last. values: none, or like indices. statuses: one a row. */
SLUICE_API sluice_status sluice_topk(const sluice_topk_input* input, int32_t* indices,
                                     size_t index_count, float* values, size_t value_count,
                                     sluice_row_status* statuses, size_t status_count,
                                     const sluice_execution* execution);

/* The vocabulary projection: logit[v] = <weight[v], hidden> + bias[v], in one fixed order. */
typedef struct sluice_dense_head {
  sluice_matrix_view weight; /* [vocab, dim] */
  const float* bias;         /* none, or one a token */
  size_t bias_count;
} sluice_dense_head;

SLUICE_API sluice_status sluice_project_workspace_bytes(const sluice_dense_head* head,
                                                        const sluice_matrix_view* hidden,
                                                        const sluice_execution* execution,
                                                        size_t* bytes);

/* query_start_loc: none, then every position is projected; or requests + 1 ascending offsets, then
 * only the last position of each request is. logits: fp32. */
SLUICE_API sluice_status sluice_project(const sluice_dense_head* head,
                                        const sluice_matrix_view* hidden,
                                        const int32_t* query_start_loc, size_t query_start_count,
                                        const sluice_mutable_logits_view* logits,
                                        const sluice_execution* execution);

#ifdef __cplusplus
}
#endif
