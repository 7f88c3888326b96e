/* Part of sluice.h: a vocabulary that is split among shards gives the answer of the whole row. */
#pragma once

#include "sluice/c/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tokens [first_id, first_id + logits.vocab). Shards ascend and adjoin; each has a row for
 * every row of the batch. */
typedef struct SLUICE_ALIASED sluice_shard {
  sluice_logits_view logits;
  int32_t first_id;
} sluice_shard;

typedef struct sluice_shard_input {
  const sluice_shard* shards;
  size_t shard_count;
  const sluice_select_params* params;
  size_t param_count;           /* 1, or one a row */
  const sluice_noise_key* keys; /* read by XTC and by draws; else there may be none */
  size_t key_count;
  sluice_limits limits;
} sluice_shard_input;

SLUICE_INIT void sluice_shard_input_init(sluice_shard_input* input) {
  *input = SLUICE_ZERO(sluice_shard_input);
  sluice_limits_init(&input->limits);
}

SLUICE_API sluice_status sluice_shards_workspace_bytes(const sluice_shard_input* input,
                                                       const sluice_execution* execution,
                                                       size_t* bytes);

SLUICE_API sluice_status sluice_select_shards(const sluice_shard_input* input, sluice_cut* cuts,
                                              size_t cut_count, const sluice_execution* execution);

/* The part of a whole row's Cut that falls into one shard; see sluice::ShardCut. part may be cut
 * itself. */
SLUICE_API sluice_status sluice_shard_cut(const sluice_cut* cut, int64_t ties_before_upper,
                                          int64_t ties_before_lower, sluice_cut* part);

SLUICE_API sluice_status sluice_sample_shards(const sluice_shard_input* input,
                                              sluice_draw_method method,
                                              sluice_token_result* results, size_t result_count,
                                              const sluice_execution* execution);

#ifdef __cplusplus
}
#endif
