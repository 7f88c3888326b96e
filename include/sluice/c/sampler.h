/* Part of sluice.h: requests with their state, and the whole step from logits to tokens. */
#pragma once

#include "sluice/c/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One thread at a time may use it. */
typedef struct sluice_sampler sluice_sampler;

typedef struct sluice_sampler_options {
  uint32_t abi_version; /* by sluice_sampler_options_init */
  int64_t vocab;
  int32_t max_requests;
  sluice_limits limits;
  sluice_backend backend;
  sluice_parallel_for parallel;
} sluice_sampler_options;

SLUICE_INIT void sluice_sampler_options_init(sluice_sampler_options* options) {
  *options = SLUICE_ZERO(sluice_sampler_options);
  options->abi_version = SLUICE_ABI_VERSION;
  options->max_requests = 256;
  sluice_limits_init(&options->limits);
  options->parallel.workers = 1;
}

/* Allocates all that steps need. *sampler is the caller's, until sluice_sampler_destroy; it is null
 * when the call fails. Destroying null does nothing. */
SLUICE_API sluice_status sluice_sampler_create(const sluice_sampler_options* options,
                                               sluice_sampler** sampler);
SLUICE_API void sluice_sampler_destroy(sluice_sampler* sampler);

/* A change of the logits by the user, after DRY and before a forced token. It runs on the thread
 * of the row and may write any value; `tokens` are prompt and output. 0 is success: any other value
 * ends the request's part of the step, which then returns SLUICE_CALLBACK_FAILED. */
typedef struct sluice_logits_processor {
  void* context; /* kept until the request is removed; the caller's */
  int (*apply)(void* context, const int32_t* tokens, size_t token_count, size_t prompt_length,
               float* logits, size_t vocab);
  bool argmax_invariant; /* it cannot move the argmax, so greedy rows skip it */
} sluice_logits_processor;

typedef struct sluice_request {
  sluice_sampling_params params;
  const int32_t* prompt;
  size_t prompt_count;
  uint32_t choice;        /* index among the completions of one prompt; below 2^24 */
  int32_t max_new_tokens; /* memory is reserved for this many; beyond, steps may allocate */
  const sluice_logits_processor* processors;
  size_t processor_count;
} sluice_request;

SLUICE_INIT void sluice_request_init(sluice_request* request) {
  *request = SLUICE_ZERO(sluice_request);
  sluice_sampling_params_init(&request->params);
  request->max_new_tokens = 256;
}

/* Names a request from add to remove. A stale handle is an error, never another request. */
typedef struct SLUICE_ALIASED sluice_request_handle {
  int32_t slot;
  uint32_t generation;
} sluice_request_handle;

/* Copies the request. SLUICE_EXHAUSTED when all slots are taken. */
SLUICE_API sluice_status sluice_sampler_add(sluice_sampler* sampler, const sluice_request* request,
                                            sluice_request_handle* handle);
SLUICE_API sluice_status sluice_sampler_remove(sluice_sampler* sampler,
                                               sluice_request_handle handle);
SLUICE_API sluice_status sluice_sampler_free_slots(const sluice_sampler* sampler, int32_t* slots);

/* The seed in use: the given one, or the random one that was chosen when the request was added. */
SLUICE_API sluice_status sluice_sampler_seed(const sluice_sampler* sampler,
                                             sluice_request_handle handle, uint64_t* seed);

/* Prompt and output. The sampler's memory, valid until the next call that changes the request; a
 * step may be given parts of it as drafts. */
SLUICE_API sluice_status sluice_sampler_tokens(const sluice_sampler* sampler,
                                               sluice_request_handle handle, const int32_t** tokens,
                                               size_t* count);
SLUICE_API sluice_status sluice_sampler_prompt_length(const sluice_sampler* sampler,
                                                      sluice_request_handle handle,
                                                      int64_t* length);

typedef struct sluice_step_request {
  sluice_request_handle request;
  const int32_t* drafts; /* n drafts take n + 1 consecutive rows of the logits */
  size_t draft_count;
  /* A tree of drafts: for each the index of the draft before it, which is below its own, or -1.
   * None: a chain. See sluice::StepRequest. */
  const int32_t* parents;
  size_t parent_count;
  /* For SLUICE_DRAFT_REJECT, what the drafts were drawn from, one row a draft; at most one. */
  sluice_matrix_view draft_probabilities;
  sluice_select_input draft_model;
  const sluice_cut* draft_cuts;
  size_t draft_cut_count;
  /* One bit a token, a row for every row of logits: (n + 1) * ceil(vocab / 32) words, or none. */
  const int32_t* bitmask;
  size_t word_count;
  int32_t forced; /* token that the first row must give; -1: none */
} sluice_step_request;

SLUICE_INIT void sluice_step_request_init(sluice_step_request* request) {
  *request = SLUICE_ZERO(sluice_step_request);
  request->request.slot = -1;
  sluice_select_input_init(&request->draft_model);
  request->forced = -1;
}

typedef struct sluice_step_input {
  sluice_logits_view logits;
  const sluice_step_request* requests; /* their rows one after the other */
  size_t request_count;
} sluice_step_input;

typedef struct sluice_step_output {
  sluice_token_result* tokens; /* one a row */
  size_t token_count;
  int32_t* emitted; /* one a request: how many of its rows hold tokens */
  size_t emitted_count;

  /* There may be none of each of these. */
  sluice_logprob_lists logprobs;
  int32_t* kept; /* the kept set as a bitmask, ceil(vocab / 32) words a row */
  size_t kept_count;
  sluice_cut_mass* masses; /* one a row */
  size_t mass_count;
  sluice_mutable_logits_view adjusted; /* fp32: the values after stage 9. May be the logits. */
  int32_t* path; /* one a row: which row of its request's logits gave its token or its status; -1:
                    after those */
  size_t path_count;
} sluice_step_output;

/* Samples and accepts; see sluice::Sampler::Step. After SLUICE_CALLBACK_FAILED `emitted` says how
 * far each request came; after any other error nothing has changed. */
SLUICE_API sluice_status sluice_sampler_step(sluice_sampler* sampler,
                                             const sluice_step_input* input,
                                             const sluice_step_output* output);

/* Appends tokens that came from elsewhere; takes back the last `count` output tokens. */
SLUICE_API sluice_status sluice_sampler_accept(sluice_sampler* sampler,
                                               sluice_request_handle handle, const int32_t* tokens,
                                               size_t token_count);
SLUICE_API sluice_status sluice_sampler_rollback(sluice_sampler* sampler,
                                                 sluice_request_handle handle, int64_t count);

#ifdef __cplusplus
}
#endif
