/* Part of sluice.h: sampling parameters, expanded from params.def as the C++ structs are. That
 * file has the meaning, range and default of each. */
#pragma once

#include "sluice/c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint8_t sluice_draw_method;
enum { SLUICE_DRAW_GUMBEL = 0, SLUICE_DRAW_CDF = 1 };

typedef uint8_t sluice_draft_mode;
enum { SLUICE_DRAFT_MATCH = 0, SLUICE_DRAFT_REJECT = 1 };

typedef uint8_t sluice_logprob_mode;
enum {
  SLUICE_LOGPROB_RAW_LOGPROBS = 0,
  SLUICE_LOGPROB_RAW_LOGITS = 1,
  SLUICE_LOGPROB_PROCESSED_LOGPROBS = 2,
  SLUICE_LOGPROB_PROCESSED_LOGITS = 3
};

/* The switches where engines mean different things by the same parameter. All 0 is vLLM's way. */
enum { SLUICE_TIES_LOWEST_ID = 0, SLUICE_TIES_ALL = 1 };
enum { SLUICE_TOP_K_TOP_P_SEQUENTIAL = 0, SLUICE_TOP_K_TOP_P_JOINT = 1 };
enum { SLUICE_MIN_P_BEFORE_TOP_K = 0, SLUICE_MIN_P_LAST = 1 };
enum { SLUICE_TOP_P_EXCLUSIVE = 0, SLUICE_TOP_P_INCLUSIVE = 1 };
enum { SLUICE_PENALTY_OUTPUT = 0, SLUICE_PENALTY_PROMPT_AND_OUTPUT = 1 };
enum { SLUICE_TEMPERATURE_BEFORE_TRUNCATION = 0, SLUICE_TEMPERATURE_LAST = 1 };

typedef struct SLUICE_ALIASED sluice_profile {
  uint8_t ties;
  uint8_t top_k_top_p;
  uint8_t min_p_stage;
  uint8_t top_p_boundary;
  uint8_t penalty_scope;
  uint8_t temperature_stage;
} sluice_profile;

/* index: below the count, for the name (static storage), which _by_name takes. */
SLUICE_API size_t sluice_profile_count(void);
SLUICE_API sluice_status sluice_profile_name_at(size_t index, const char** name);
SLUICE_API sluice_status sluice_profile_by_name(const char* name, sluice_profile* profile);

/* Limits that the operator of a service may change. 2 unless lifted. */
typedef struct SLUICE_ALIASED sluice_limits {
  float max_temperature;
} sluice_limits;

SLUICE_INIT void sluice_limits_init(sluice_limits* limits) { limits->max_temperature = 2.0f; }

/* Lists of a request's parameters. The caller's memory, read during the call only. */
typedef struct sluice_token_ids {
  const int32_t* data;
  size_t count;
} sluice_token_ids;

typedef struct sluice_optional_token_ids {
  bool has_value; /* an empty list differs from none */
  const int32_t* data;
  size_t count;
} sluice_optional_token_ids;

typedef struct sluice_token_sequences {
  const sluice_token_ids* data;
  size_t count;
} sluice_token_sequences;

typedef struct SLUICE_ALIASED sluice_bias_entry {
  int32_t id;
  float bias;
} sluice_bias_entry;

typedef struct sluice_bias_entries {
  const sluice_bias_entry* data;
  size_t count;
} sluice_bias_entries;

/* The parameters that decide the kept set of one row. */
typedef struct SLUICE_ALIASED sluice_select_params {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) type name;
#include "sluice/params.def"
  sluice_profile profile;
} sluice_select_params;

SLUICE_INIT void sluice_select_params_init(sluice_select_params* params) {
  *params = SLUICE_ZERO(sluice_select_params);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  params->name = default_value;
#include "sluice/params.def"
}

/* The C names of the types that params.def writes. */
#define SLUICE_C_DrawMethod sluice_draw_method
#define SLUICE_C_DraftMode sluice_draft_mode
#define SLUICE_C_LogprobMode sluice_logprob_mode
#define SLUICE_C_Profile sluice_profile
#define SLUICE_C_TokenIds sluice_token_ids
#define SLUICE_C_OptionalTokenIds sluice_optional_token_ids
#define SLUICE_C_TokenSequences sluice_token_sequences
#define SLUICE_C_BiasEntries sluice_bias_entries

/* All sampling parameters of a request. An optional parameter `seed` is the pair has_seed and
 * seed. */
typedef struct sluice_sampling_params {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) type name;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) type name;
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  bool has_##name;                                           \
  type name;
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) SLUICE_C_##type name;
#define SLUICE_LIST_PARAM(type, name, json, help) SLUICE_C_##type name;
#include "sluice/params.def"
} sluice_sampling_params;

/* Choices are 0, the first of their values; optional parameters and lists are not set. */
SLUICE_INIT void sluice_sampling_params_init(sluice_sampling_params* params) {
  *params = SLUICE_ZERO(sluice_sampling_params);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  params->name = default_value;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  params->name = default_value;
#include "sluice/params.def"
}

#undef SLUICE_C_DrawMethod
#undef SLUICE_C_DraftMode
#undef SLUICE_C_LogprobMode
#undef SLUICE_C_Profile
#undef SLUICE_C_TokenIds
#undef SLUICE_C_OptionalTokenIds
#undef SLUICE_C_TokenSequences
#undef SLUICE_C_BiasEntries

/* Fails on the first parameter out of range, the first token id outside [0, vocab), or an empty
 * allowed_token_ids or bad word. limits: null for the usual ones. Copies the lists meanwhile. */
SLUICE_API sluice_status sluice_validate(const sluice_sampling_params* params, int64_t vocab,
                                         const sluice_limits* limits);

/* The stream of noise that a draw uses. */
typedef uint8_t sluice_draw_stream;
enum { SLUICE_STREAM_TARGET = 0, SLUICE_STREAM_DRAFT = 1 };

/* The key of a row's noise: the same key gives the same token in any batch. {0} is a good one. */
typedef struct SLUICE_ALIASED sluice_noise_key {
  uint64_t seed;
  uint32_t position; /* number of tokens before this one, prompt and output */
  uint32_t choice;   /* index among the completions of one request; below 2^24 */
  sluice_draw_stream stream;
} sluice_noise_key;

#ifdef __cplusplus
}
#endif
