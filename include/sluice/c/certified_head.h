/* Part of sluice.h: the certified head, tokens of the dense head from a quarter of its bytes. See
 * sluice/certified_head.hpp for what it promises. Draws from one are certified_sample.h; a dense
 * head alone is sluice_project. */
#pragma once

#include "sluice/c/rows.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef uint8_t sluice_certificate_kind;
enum {
  SLUICE_CERTIFICATE_DITHER4 = 0, /* a wrong interval in one of 10^18 hidden states */
  SLUICE_CERTIFICATE_STRICT = 1   /* twice the memory, never a wrong interval */
};
SLUICE_API const char* sluice_certificate_kind_name(sluice_certificate_kind kind); /* static */
SLUICE_API sluice_status sluice_certificate_kind_by_name(const char* name,
                                                         sluice_certificate_kind* kind);

/* The planes of a head: immutable, without the weights. */
typedef struct sluice_head_planes sluice_head_planes;

typedef struct sluice_plane_options {
  uint32_t abi_version; /* by sluice_plane_options_init */
  sluice_parallel_for parallel;
  /* To build. Without a seed the operating system gives one; keep it private. */
  sluice_certificate_kind kind;
  bool has_seed;
  uint64_t seed;
  /* Null, or called now and then with the rows that are done: on threads of the parallel-for,
   * perhaps by several at once and in any order. */
  void (*progress)(void* context, int64_t rows, int64_t vocab);
  void* progress_context;
  /* To load: what is compared with the hashes in the file. */
  bool check_weights; /* reads them once */
  bool check_planes;
} sluice_plane_options;

SLUICE_INIT void sluice_plane_options_init(sluice_plane_options* options) {
  *options = SLUICE_ZERO(sluice_plane_options);
  options->abi_version = SLUICE_ABI_VERSION;
  options->parallel.workers = 1;
  options->check_weights = true;
  options->check_planes = true;
}

/* weight: [vocab, dim], finite. *planes is the caller's, until sluice_head_planes_destroy; it is
 * null when the call fails. Destroying null does nothing. */
SLUICE_API sluice_status sluice_head_planes_build(const sluice_matrix_view* weight,
                                                  const sluice_plane_options* options,
                                                  sluice_head_planes** planes);
SLUICE_API void sluice_head_planes_destroy(sluice_head_planes* planes);

/* The file is mapped, not read: it must not change while the planes are in use. A file that is not
 * one of planes, damaged, of another version or of other weights is SLUICE_INVALID_VALUE, and
 * sluice_last_error_value() is "\"PATH\" (what was found)". */
SLUICE_API sluice_status sluice_head_planes_load(const char* path, const sluice_matrix_view* weight,
                                                 const sluice_plane_options* options,
                                                 sluice_head_planes** planes);

/* Whole or not at all. A file of DITHER4 planes is as private as the seed. */
SLUICE_API sluice_status sluice_head_planes_save(const sluice_head_planes* planes,
                                                 const char* path);

typedef struct sluice_plane_info {
  sluice_certificate_kind kind;
  int64_t vocab;
  int64_t dim;
  size_t bytes; /* in memory and as a file */
} sluice_plane_info;

SLUICE_API sluice_status sluice_head_planes_info(const sluice_head_planes* planes,
                                                 sluice_plane_info* info);

/* Calls may run concurrently, each with its own workspace. */
typedef struct sluice_certified_head sluice_certified_head;

/* planes: of these weights, of which only the shape and the dtype are compared. The head keeps what
 * it needs of them, so they may be destroyed before it; the weights and the bias, which must be
 * finite, are the caller's and must outlive it. *certified is the caller's, until
 * sluice_certified_head_destroy; it is null when the call fails. Destroying null does nothing. */
SLUICE_API sluice_status sluice_certified_head_create(const sluice_dense_head* head,
                                                      const sluice_head_planes* planes,
                                                      sluice_certified_head** certified);
SLUICE_API void sluice_certified_head_destroy(sluice_certified_head* certified);

typedef struct sluice_certified_input {
  sluice_matrix_view hidden; /* [rows, dim] */
  const int32_t* bitmask; /* none, or ceil(vocab / 32) words a row: the tokens that are allowed */
  size_t word_count;
} sluice_certified_input;

SLUICE_INIT void sluice_certified_input_init(sluice_certified_input* input) {
  *input = SLUICE_ZERO(sluice_certified_input);
}

/* How a row got its answer. */
typedef uint8_t sluice_certified_path;
enum {
  SLUICE_PATH_NOTHING = 0, /* its status was clear before anything was read */
  SLUICE_PATH_PLANES = 1,  /* the certificate held */
  SLUICE_PATH_ALLOWED = 2, /* few tokens were allowed, and all of them were computed */
  SLUICE_PATH_DENSE = 3    /* the whole head was read */
};
SLUICE_API const char* sluice_certified_path_name(sluice_certified_path path); /* static */

/* Why a row took the whole head; see sluice::DenseReason. */
typedef uint8_t sluice_dense_reason;
enum {
  SLUICE_DENSE_NONE = 0,
  SLUICE_DENSE_HIDDEN = 1,    /* the hidden state is not finite */
  SLUICE_DENSE_SURVIVORS = 2, /* more rows might matter than are worth reading one by one */
  SLUICE_DENSE_PARAMETERS =
      3,                /* they are measured on all tokens: typical, top-n-sigma and others */
  SLUICE_DENSE_MASS = 4 /* of top-p on all tokens: bounds of their mass leave open what it keeps */
};
SLUICE_API const char* sluice_dense_reason_name(sluice_dense_reason reason); /* static */

typedef struct SLUICE_ALIASED sluice_certified_row {
  sluice_certified_path path;
  sluice_dense_reason reason;
  int32_t survivors; /* rows of the head that were computed */
  float
      margin; /* by how many logits the nearest one that was left out missed; +inf: there is none */
} sluice_certified_row;

/* The work of a call. */
typedef struct SLUICE_ALIASED sluice_certified_stats {
  int64_t rows;
  int64_t dense_rows; /* that fell back to the whole head */
  int64_t survivors;
  int64_t bytes_read;  /* of planes and weights; planes once for all rows of the call */
  int64_t dense_bytes; /* what the dense head reads in their place */
  float least_margin;
} sluice_certified_stats;

/* The first k tokens of each row in the total order. */
typedef struct sluice_certified_top {
  int32_t k;
  int32_t* ids; /* rows * k; -1 after the last, and with a status */
  size_t id_count;
  float* logits; /* rows * k; -inf after the last, NaN with a status */
  size_t logit_count;
  sluice_row_status* status; /* one a row */
  size_t status_count;
} sluice_certified_top;

/* Bytes of workspace for so many rows, with the execution's backend and workers; its workspace is
 * not looked at. */
SLUICE_API sluice_status
sluice_certified_topk_workspace_bytes(const sluice_certified_head* certified, int64_t rows,
                                      const sluice_execution* execution, size_t* bytes);

SLUICE_API sluice_status sluice_certified_topk(const sluice_certified_head* certified,
                                               const sluice_certified_input* input,
                                               const sluice_certified_top* top,
                                               sluice_certified_row* rows, size_t row_count,
                                               sluice_certified_stats* stats,
                                               const sluice_execution* execution);

#ifdef __cplusplus
}
#endif
