/* A sampler of llama.cpp that selects and draws with Sluice: the last one of a chain. */
#pragma once

#include <llama.h>

#include "sluice/sluice.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The token is a function of the logits, the seed and the number of tokens that were accepted since
 * the start or llama_sampler_reset, so accept the prompt as well. What earlier samplers of the
 * chain dropped counts as masked; in which order they left the rest changes nothing.
 *
 * Takes its memory here, none per token. Null when the parameters are not allowed or memory is
 * short: sluice_last_error() says what is wrong. */
struct llama_sampler* llama_sampler_init_sluice(int32_t n_vocab, const sluice_select_params* params,
                                                uint64_t seed);

/* Why the last llama_sampler_apply selected nothing (`selected` is -1 then): "nan_input" and the
 * like for the row, or an error. Empty when it selected. */
const char* llama_sampler_sluice_error(const struct llama_sampler* sampler);

#ifdef __cplusplus
}
#endif
