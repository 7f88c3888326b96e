/* Selects from a row of logits and draws tokens from what is kept. */
#include <stdio.h>
#include <stdlib.h>

#include "sluice/sluice.h"

/* Gives the execution the workspace that calls on these logits need; returns what to free. */
static void* add_workspace(sluice_execution* execution, const sluice_logits_view* logits) {
  size_t bytes;
  if (sluice_select_workspace_bytes(logits, execution, &bytes) != SLUICE_OK) return NULL;
  char* memory = malloc(bytes + SLUICE_WORKSPACE_ALIGNMENT);
  if (memory == NULL) return NULL;
  const size_t beyond = (uintptr_t)memory % SLUICE_WORKSPACE_ALIGNMENT;
  execution->workspace = memory + (SLUICE_WORKSPACE_ALIGNMENT - beyond);
  execution->workspace_bytes = bytes;
  return memory;
}

int main(void) {
  const float logits[6] = {1.5f, 0.25f, 3.0f, 2.75f, -1.0f, 2.5f};

  // [sample]
  sluice_select_params params;
  sluice_select_params_init(&params);
  params.top_k = 4;
  params.top_p = 0.9f;
  sluice_noise_key key = {42, 0, 0, SLUICE_STREAM_TARGET};  // seed, position, choice
  sluice_select_input input;
  sluice_select_input_init(&input);
  input.logits = (sluice_logits_view){logits, 1, 6, 6, SLUICE_F32, {SLUICE_CPU, 0}};
  input.params = &params, input.param_count = 1;
  input.keys = &key, input.key_count = 1;

  sluice_execution execution;
  sluice_execution_init(&execution);
  void* memory = add_workspace(&execution, &input.logits);  // malloc; a call takes no memory
  sluice_token_result token;
  if (sluice_sample(&input, SLUICE_DRAW_GUMBEL, &token, 1, &execution) != SLUICE_OK) {
    fprintf(stderr, "%s\n", sluice_last_error());
    return 1;
  }
  printf("token %d, drawn from %d candidates\n", token.id, token.cut.count);
  // [sample]

  for (key.position = 1; key.position < 5; ++key.position) {
    if (sluice_sample(&input, SLUICE_DRAW_GUMBEL, &token, 1, &execution) != SLUICE_OK) return 1;
    printf("token %d\n", token.id);
  }
  free(memory);
  return 0;
}
