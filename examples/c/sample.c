/* Selects from a row of logits and draws tokens from what is kept. */
#include <stdio.h>
#include <stdlib.h>

#include "sluice/sluice.h"

static int fail(void) {
  fprintf(stderr, "%s\n", sluice_last_error());
  return 1;
}

int main(void) {
  // [sample]
  const float logits[6] = {1.5f, 0.25f, 3.0f, 2.75f, -1.0f, 2.5f};
  sluice_select_params params;
  sluice_select_params_init(&params);
  params.temperature = 0.8f;
  params.top_k = 4;
  params.top_p = 0.9f;
  sluice_noise_key key = {42, 0, 0, SLUICE_STREAM_TARGET};
  sluice_select_input input;
  sluice_select_input_init(&input);
  input.logits = (sluice_logits_view){logits, 1, 6, 6, SLUICE_F32, {SLUICE_CPU, 0}};
  input.params = &params;
  input.param_count = 1;
  input.keys = &key;
  input.key_count = 1;

  sluice_execution execution;
  sluice_execution_init(&execution);
  size_t bytes;
  if (sluice_select_workspace_bytes(&input.logits, &execution, &bytes)) return fail();
  char* memory = malloc(bytes + SLUICE_WORKSPACE_ALIGNMENT);
  if (memory == NULL) return 1;
  execution.workspace = memory + SLUICE_WORKSPACE_ALIGNMENT -
                        (uintptr_t)memory % SLUICE_WORKSPACE_ALIGNMENT;
  execution.workspace_bytes = bytes;

  for (key.position = 0; key.position < 3; ++key.position) {
    sluice_token_result token;
    if (sluice_sample(&input, SLUICE_DRAW_GUMBEL, &token, 1, &execution)) return fail();
    printf("token %d, drawn from %d candidates\n", token.id, token.cut.count);
  }
  free(memory);
  // [sample]
  return 0;
}
