/* Part of sluice.h: why a token of a row was drawn, kept or dropped. By the definition, for people
 * to look at: it allocates, and sorts the row. See sluice/explain.hpp for what each number is. */
#pragma once

#include "sluice/c/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In the order in which they run. */
typedef uint8_t sluice_stage;
enum {
  SLUICE_STAGE_LOGITS = 0,
  SLUICE_STAGE_BITMASK = 1,
  SLUICE_STAGE_ALLOWED_IDS = 2,
  SLUICE_STAGE_BAD_WORDS = 3,
  SLUICE_STAGE_MIN_TOKENS = 4,
  SLUICE_STAGE_LOGIT_BIAS = 5,
  SLUICE_STAGE_REPETITION_PENALTY = 6,
  SLUICE_STAGE_FREQUENCY_PENALTY = 7,
  SLUICE_STAGE_PRESENCE_PENALTY = 8,
  SLUICE_STAGE_DRY = 9,
  SLUICE_STAGE_PROCESSORS = 10,
  SLUICE_STAGE_FORCED = 11,
  SLUICE_STAGE_GREEDY = 12,
  SLUICE_STAGE_MIN_P = 13,
  SLUICE_STAGE_TOP_N_SIGMA = 14,
  SLUICE_STAGE_TYPICAL = 15,
  SLUICE_STAGE_TOP_K = 16,
  SLUICE_STAGE_TOP_P = 17,
  SLUICE_STAGE_MIN_P_LAST = 18,
  SLUICE_STAGE_XTC = 19,
  SLUICE_STAGE_DRAW = 20
};
#define SLUICE_STAGE_COUNT 21
SLUICE_API const char* sluice_stage_name(sluice_stage stage); /* static storage */

/* How the quantity of a token stands to the limit when the stage keeps (or draws) the token. */
typedef uint8_t sluice_comparison;
enum {
  SLUICE_COMPARE_NONE = 0,
  SLUICE_COMPARE_BELOW = 1,
  SLUICE_COMPARE_AT_MOST = 2,
  SLUICE_COMPARE_AT_LEAST = 3,
  SLUICE_COMPARE_ABOVE = 4
};

typedef struct SLUICE_ALIASED sluice_stage_report {
  bool is_on;          /* the parameters turn the stage on */
  bool is_left;        /* the stage keeps the token; for the draw: it was drawn */
  int64_t tokens_left; /* in the row after the stage */
  double mass_left;    /* filters: the share of the adjusted row's mass */
  float before;        /* adjustments: the token's value */
  float after;
  sluice_comparison comparison;
  double quantity; /* NaN where nothing was compared */
  double limit;
  bool is_exempt; /* it stays although the comparison fails */
} sluice_stage_report;

typedef struct sluice_explanation {
  int32_t id;
  sluice_row_status status; /* with another than 0, no filter has run and nothing is drawn */
  float logit;
  float adjusted;
  int64_t rank; /* place in the adjusted row, from 1; 0 when masked */
  double probability;
  double kept_probability;
  bool is_kept;
  bool is_drawn;
  bool has_dropped_by;
  sluice_stage dropped_by;
  int32_t drawn_id;
  sluice_draw_method draw_method;
  bool xtc_coin_fell;
  sluice_cut cut;
  sluice_stage_report stages[SLUICE_STAGE_COUNT];
} sluice_explanation;

typedef struct sluice_explain_input {
  uint32_t abi_version;          /* by sluice_explain_input_init */
  sluice_logits_view logits;     /* one row, as it came from the model */
  sluice_sampling_params params; /* the seed is that of `key` */
  sluice_noise_key key;
  const int32_t* tokens; /* prompt, then output */
  size_t token_count;
  size_t prompt_length;
  const int32_t* bitmask; /* ceil(vocab / 32) words, or none */
  size_t word_count;
  int32_t forced; /* -1: none */
  const sluice_logits_processor* processors;
  size_t processor_count;
  sluice_limits limits;
} sluice_explain_input;

SLUICE_INIT void sluice_explain_input_init(sluice_explain_input* input) {
  *input = SLUICE_ZERO(sluice_explain_input);
  input->abi_version = SLUICE_ABI_VERSION;
  sluice_sampling_params_init(&input->params);
  input->forced = -1;
  sluice_limits_init(&input->limits);
}

/* One explanation an id, in their order. */
SLUICE_API sluice_status sluice_explain(const sluice_explain_input* input, const int32_t* ids,
                                        size_t id_count, sluice_explanation* explanations,
                                        size_t explanation_count);

/* "top-p dropped it: 0.912 of the mass lies before it, 0.9 is kept". Writes as much as fits, ended
 * by a 0; *length is that of the whole text, so that one call with capacity 0 measures it. */
SLUICE_API sluice_status sluice_explanation_sentence(const sluice_explanation* explanation,
                                                     char* text, size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif
