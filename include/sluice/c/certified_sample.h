/* Part of sluice.h: tokens drawn from a certified head, with parameters and keys of yours or for
 * the requests of a sampler. */
#pragma once

#include "sluice/c/certified_head.h"
#include "sluice/c/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How rows are drawn from. Parameters and keys: one for all rows or one a row. */
typedef struct sluice_row_draws {
  const sluice_select_params* params;
  size_t param_count;
  const sluice_noise_key* keys;
  size_t key_count;
  sluice_limits limits;
  sluice_draw_method method;
} sluice_row_draws;

SLUICE_INIT void sluice_row_draws_init(sluice_row_draws* draws) {
  *draws = SLUICE_ZERO(sluice_row_draws);
  sluice_limits_init(&draws->limits);
}

/* Bytes of workspace for so many rows, for all calls below, with the execution's backend and
 * workers; its workspace is not looked at. */
SLUICE_API sluice_status
sluice_sample_from_head_workspace_bytes(const sluice_certified_head* certified, int64_t rows,
                                        const sluice_execution* execution, size_t* bytes);

/* One token a hidden state: the results of sluice_project and then sluice_sample. Log-probabilities
 * are measured on all logits, so there are none. results: one a row. rows: none, or one a row.
 * stats: may be null. */
SLUICE_API sluice_status sluice_sample_from_head(const sluice_certified_head* certified,
                                                 const sluice_certified_input* input,
                                                 const sluice_row_draws* draws,
                                                 sluice_token_result* results, size_t result_count,
                                                 sluice_certified_row* rows, size_t row_count,
                                                 sluice_certified_stats* stats,
                                                 const sluice_execution* execution);

/* The ids and statuses alone, which takes less of the head where top-p decides without top-k: a Cut
 * takes the mass of all tokens to within the weight of one. statuses: none, or one a row. */
SLUICE_API sluice_status sluice_sample_ids_from_head(
    const sluice_certified_head* certified, const sluice_certified_input* input,
    const sluice_row_draws* draws, int32_t* ids, size_t id_count, sluice_row_status* statuses,
    size_t status_count, sluice_certified_row* rows, size_t row_count,
    sluice_certified_stats* stats, const sluice_execution* execution);

/* One token for each of the sampler's requests, of which hidden state r is requests[r]'s: what
 * sluice_project and then sluice_sampler_step give requests without drafts and forced tokens, and
 * the requests have accepted the tokens. Each request may occur once. Penalties, bias, masks and
 * every other change of a request's logits apply, except processors, which need all logits: a
 * request with processors that would run gets SLUICE_INVALID_VALUE, and then nothing has changed.
 * The backend and the workers are the execution's. */
SLUICE_API sluice_status sluice_sampler_step_from_head(
    sluice_sampler* sampler, const sluice_certified_head* certified,
    const sluice_certified_input* input, const sluice_request_handle* requests,
    size_t request_count, sluice_token_result* results, size_t result_count,
    sluice_certified_row* rows, size_t row_count, sluice_certified_stats* stats,
    const sluice_execution* execution);

/* The same as sluice_sample_ids_from_head is to sluice_sample_from_head. */
SLUICE_API sluice_status sluice_sampler_step_ids_from_head(
    sluice_sampler* sampler, const sluice_certified_head* certified,
    const sluice_certified_input* input, const sluice_request_handle* requests,
    size_t request_count, int32_t* ids, size_t id_count, sluice_row_status* statuses,
    size_t status_count, sluice_certified_row* rows, size_t row_count,
    sluice_certified_stats* stats, const sluice_execution* execution);

#ifdef __cplusplus
}
#endif
