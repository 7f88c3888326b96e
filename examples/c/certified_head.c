/* Draws tokens from hidden states through a certified head, and the same from the dense head. */
#include <stdio.h>
#include <stdlib.h>

#include "sluice/sluice.h"

enum { VOCAB = 4000, DIM = 200, ROWS = 3 };

static float weights[VOCAB * DIM]; /* where a model's own would lie */
static float states[ROWS * DIM];
static float logits[ROWS * VOCAB];

static int fail(void) {
  fprintf(stderr, "%s\n", sluice_last_error());
  return 1;
}

/* Numbers in [-1, 1), in place of a model. */
static float any_number(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

static void fill(void) {
  uint32_t state = 7;
  for (int i = 0; i < VOCAB * DIM; ++i) weights[i] = any_number(&state);
  /* Each state points along some row, as those of a model that is fairly sure of its next token. */
  for (int i = 0; i < ROWS * DIM; ++i) {
    const float along = weights[(100 + 1000 * (i / DIM)) * DIM + i % DIM];
    states[i] = 0.15f * along + 0.3f * any_number(&state);
  }
}

/* Memory for a workspace: `room` is what to free. */
static void* aligned(size_t bytes, void** room) {
  char* memory = malloc(bytes + SLUICE_WORKSPACE_ALIGNMENT);
  *room = memory;
  if (memory == NULL) return NULL;
  return memory + (SLUICE_WORKSPACE_ALIGNMENT - (uintptr_t)memory % SLUICE_WORKSPACE_ALIGNMENT);
}

static void show_progress(void* context, int64_t rows, int64_t vocab) {
  fprintf(context, "\rplanes: %d of %d rows", (int)rows, (int)vocab);
  if (rows == vocab) fprintf(context, "\n");
}

/* From the file where it is there and of these weights; else built, and kept for the next start. */
static sluice_head_planes* planes_of(const char* path, const sluice_matrix_view* weight) {
  // [planes]
  sluice_head_planes* planes;
  sluice_plane_options options;
  sluice_plane_options_init(&options);
  options.progress = show_progress, options.progress_context = stderr;
  if (sluice_head_planes_load(path, weight, &options, &planes) != SLUICE_OK) {
    fprintf(stderr, "%s\n", sluice_last_error());  // which file, and why not
    if (sluice_head_planes_build(weight, &options, &planes) != SLUICE_OK) return NULL;
    if (sluice_head_planes_save(planes, path) != SLUICE_OK) fail();  // they serve all the same
  }
  // [planes]
  return planes;
}

int main(int argc, char** argv) {
  const char* path = argc > 1 ? argv[1] : "certified_head.planes";
  fill();
  const sluice_device cpu = {SLUICE_CPU, 0};
  const sluice_dense_head dense = {{weights, VOCAB, DIM, DIM, SLUICE_F32, cpu}, NULL, 0};
  sluice_head_planes* planes = planes_of(path, &dense.weight);
  if (planes == NULL) return fail();

  sluice_select_params params;
  sluice_select_params_init(&params);
  params.top_k = 50;
  params.top_p = 0.9f;
  const sluice_noise_key keys[ROWS] = {{42, 0, 0, SLUICE_STREAM_TARGET},
                                       {43, 0, 0, SLUICE_STREAM_TARGET},
                                       {44, 0, 0, SLUICE_STREAM_TARGET}};
  sluice_execution execution;
  sluice_execution_init(&execution);
  sluice_token_result tokens[ROWS];
  void* memory;

  // [sample]
  sluice_certified_head* head;
  if (sluice_certified_head_create(&dense, planes, &head) != SLUICE_OK) return fail();
  sluice_certified_input input;
  sluice_certified_input_init(&input);
  input.hidden = (sluice_matrix_view){states, ROWS, DIM, DIM, SLUICE_F32, cpu};
  sluice_row_draws draws;
  sluice_row_draws_init(&draws);
  draws.params = &params, draws.param_count = 1;
  draws.keys = keys, draws.key_count = ROWS;
  if (sluice_sample_from_head_workspace_bytes(head, ROWS, &execution, &execution.workspace_bytes) !=
      SLUICE_OK) {
    return fail();
  }
  execution.workspace = aligned(execution.workspace_bytes, &memory);  // malloc
  sluice_certified_stats stats;
  if (sluice_sample_from_head(head, &input, &draws, tokens, ROWS, NULL, 0, &stats, &execution) !=
      SLUICE_OK) {
    return fail();
  }
  printf("tokens %d %d %d: %.0f %% of the bytes, %d rows computed, %d fallbacks\n", tokens[0].id,
         tokens[1].id, tokens[2].id, 100.0 * (double)stats.bytes_read / (double)stats.dense_bytes,
         (int)stats.survivors, (int)stats.dense_rows);
  // [sample]

  /* Top-p over the whole vocabulary: its token without its kept set, which takes less. */
  sluice_select_params nucleus;
  sluice_select_params_init(&nucleus);
  nucleus.top_p = 0.9f;
  draws.params = &nucleus;
  // [ids]
  int32_t ids[ROWS];
  sluice_row_status statuses[ROWS];
  if (sluice_sample_ids_from_head(head, &input, &draws, ids, ROWS, statuses, ROWS, NULL, 0, &stats,
                                  &execution) != SLUICE_OK) {
    return fail();
  }
  // [ids]

  /* Requests with a history, of which two are penalised for the token that is likely here. */
  sluice_sampler_options options;
  sluice_sampler_options_init(&options);
  options.vocab = VOCAB;
  sluice_sampler* sampler;
  if (sluice_sampler_create(&options, &sampler) != SLUICE_OK) return fail();
  // [step]
  sluice_request_handle requests[ROWS];
  for (int r = 0; r < ROWS; ++r) {
    sluice_request request;
    sluice_request_init(&request);
    request.params.temperature = 0.0f;
    request.params.repetition_penalty = r == 0 ? 1.0f : 3.0f;
    request.prompt = &tokens[r].id, request.prompt_count = 1;
    if (sluice_sampler_add(sampler, &request, &requests[r]) != SLUICE_OK) return fail();
  }
  int32_t stepped[ROWS];
  if (sluice_sampler_step_ids_from_head(sampler, head, &input, requests, ROWS, stepped, ROWS,
                                        statuses, ROWS, NULL, 0, &stats, &execution) != SLUICE_OK) {
    return fail();
  }
  // [step]
  if (stepped[0] != tokens[0].id || stepped[1] == tokens[1].id || stepped[2] == tokens[2].id) {
    return 1;
  }
  sluice_sampler_destroy(sampler);
  free(memory);
  sluice_certified_head_destroy(head);
  sluice_head_planes_destroy(planes);

  /* The same from all logits. */
  sluice_select_input all;
  sluice_select_input_init(&all);
  all.logits = (sluice_logits_view){logits, ROWS, VOCAB, VOCAB, SLUICE_F32, cpu};
  all.params = &params, all.param_count = 1;
  all.keys = keys, all.key_count = ROWS;
  const sluice_mutable_logits_view to = {logits, ROWS, VOCAB, VOCAB, SLUICE_F32, cpu};
  sluice_token_result expected[ROWS];
  size_t project_bytes;
  if (sluice_project_workspace_bytes(&dense, &input.hidden, &execution, &project_bytes) !=
          SLUICE_OK ||
      sluice_select_workspace_bytes(&all.logits, &execution, &execution.workspace_bytes) !=
          SLUICE_OK) {
    return fail();
  }
  if (execution.workspace_bytes < project_bytes) execution.workspace_bytes = project_bytes;
  execution.workspace = aligned(execution.workspace_bytes, &memory);
  if (sluice_project(&dense, &input.hidden, NULL, 0, &to, &execution) != SLUICE_OK ||
      sluice_sample(&all, SLUICE_DRAW_GUMBEL, expected, ROWS, &execution) != SLUICE_OK) {
    return fail();
  }
  sluice_token_result all_of_nucleus[ROWS];
  all.params = &nucleus;
  if (sluice_sample(&all, SLUICE_DRAW_GUMBEL, all_of_nucleus, ROWS, &execution) != SLUICE_OK) {
    return fail();
  }
  free(memory);
  for (int r = 0; r < ROWS; ++r) {
    if (statuses[r] != SLUICE_ROW_OK || ids[r] != all_of_nucleus[r].id) return 1;
    if (tokens[r].status != SLUICE_ROW_OK || tokens[r].id != expected[r].id ||
        tokens[r].cut.count != expected[r].cut.count) {
      return 1;
    }
  }
  return 0;
}
