/* Part of sluice.h: versions, errors, views of memory, and where a call runs. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Set while the shared library itself is compiled: it exports these functions and nothing else. */
#if defined(SLUICE_C_EXPORTS) && defined(__GNUC__)
#define SLUICE_API __attribute__((visibility("default")))
#else
#define SLUICE_API
#endif

/* The library reads these structs in place, as its own C++ types of the same layout. */
#if defined(__GNUC__)
#define SLUICE_ALIASED __attribute__((may_alias))
#else
#define SLUICE_ALIASED
#endif

#if defined(__cplusplus) && __cplusplus >= 202002L
#define SLUICE_INIT constexpr inline
#else
#define SLUICE_INIT static inline
#endif
#ifdef __cplusplus
#define SLUICE_ZERO(type) \
  type {}
#else
#define SLUICE_ZERO(type) ((type){0})
#endif

#define SLUICE_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* SLUICE_ABI_VERSION of the library that runs; its version, "MAJOR.MINOR.PATCH", of static storage.
 */
SLUICE_API uint32_t sluice_abi_version(void);
SLUICE_API const char* sluice_version(void);

/* The result of a call. 1 to 99 are 1 + sluice::ErrorCode. */
typedef int32_t sluice_status;
enum {
  SLUICE_OK = 0,
  SLUICE_INVALID_VALUE = 1,    /* a value is outside its allowed range */
  SLUICE_INVALID_TYPE = 2,     /* a dtype or device is not the one the function takes */
  SLUICE_UNAVAILABLE = 3,      /* a backend or feature is not in this build or on this machine */
  SLUICE_EXHAUSTED = 4,        /* no room now; the same call may succeed later */
  SLUICE_OUT_OF_MEMORY = 100,  /* an allocation failed */
  SLUICE_CALLBACK_FAILED = 101 /* a callback threw, or a logits processor returned an error */
};

/* The last call of this thread that failed: "top_p = 1.5 is not allowed: (0, 1]", or "missing
 * prompt: a text" where the value is empty, and its three parts one by one (empty where the status
 * is above 99). A call that succeeds leaves them alone; before the first failure they are "". Valid
 * until the next failing call of the same thread. */
SLUICE_API const char* sluice_last_error(void);
SLUICE_API const char* sluice_last_error_parameter(void);
SLUICE_API const char* sluice_last_error_value(void);
SLUICE_API const char* sluice_last_error_allowed(void);

/* Trouble with one row, in order of precedence: the largest value is reported. */
typedef uint8_t sluice_row_status;
enum {
  SLUICE_ROW_OK = 0,
  SLUICE_ROW_EMPTY_SUPPORT = 16, /* every token is masked */
  SLUICE_ROW_POS_INF_INPUT = 32, /* an unmasked value is +inf after the adjustments */
  SLUICE_ROW_NAN_INPUT = 48,     /* an unmasked value is NaN after the adjustments */
  SLUICE_ROW_BAD_PARAM = 64      /* a parameter of this row is out of range */
};
SLUICE_API const char* sluice_row_status_name(sluice_row_status status); /* static storage */

typedef uint8_t sluice_dtype;
enum { SLUICE_F32 = 0, SLUICE_BF16 = 1, SLUICE_F16 = 2 };
SLUICE_API const char* sluice_dtype_name(sluice_dtype dtype); /* static storage */

typedef uint8_t sluice_device_kind;
enum { SLUICE_CPU = 0, SLUICE_CUDA = 1 };

typedef struct SLUICE_ALIASED sluice_device {
  sluice_device_kind kind;
  int32_t index;
} sluice_device;

/* The largest vocabulary, and row of scores. */
#define SLUICE_MAX_VOCAB 8388608

/* A matrix of which only the last axis is contiguous: `stride` elements lie between row starts.
 * What lies between the width and the stride is never read or written. */
typedef struct SLUICE_ALIASED sluice_matrix_view {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t stride;
  sluice_dtype dtype;
  sluice_device device;
} sluice_matrix_view;

/* One row of logits (or scores) per position to sample. */
typedef struct SLUICE_ALIASED sluice_logits_view {
  const void* data;
  int64_t rows;
  int64_t vocab;
  int64_t stride;
  sluice_dtype dtype;
  sluice_device device;
} sluice_logits_view;

/* A view for functions that write in place. */
typedef struct SLUICE_ALIASED sluice_mutable_logits_view {
  void* data;
  int64_t rows;
  int64_t vocab;
  int64_t stride;
  sluice_dtype dtype;
  sluice_device device;
} sluice_mutable_logits_view;

/* Backends, the fastest first. AUTO is the fastest available one; the environment variable
 * SLUICE_BACKEND names another. */
typedef uint8_t sluice_backend;
enum {
  SLUICE_BACKEND_AUTO = 0,
  SLUICE_BACKEND_REF = 1,
  SLUICE_BACKEND_CPU_AVX2 = 2,
  SLUICE_BACKEND_CPU_AVX512 = 3
};

typedef struct sluice_backend_info {
  sluice_backend backend;
  bool available;
  const char* name;
  const char* reason; /* why it is not available */
} sluice_backend_info;

/* The texts of an info have static storage. index: below the count. */
SLUICE_API size_t sluice_backend_count(void);
SLUICE_API sluice_status sluice_backend_at(size_t index, sluice_backend_info* info);
SLUICE_API sluice_status sluice_backend_by_name(const char* name, sluice_backend* backend);

/* The ways to select. All give the same Cut: an algorithm changes the time, never the answer. */
typedef uint8_t sluice_algorithm;
enum {
  SLUICE_ALGORITHM_AUTO = 0,
  SLUICE_ALGORITHM_CERTIFIED = 1,
  SLUICE_ALGORITHM_QUICKSELECT = 2,
  SLUICE_ALGORITHM_PIVOT = 3
};

typedef struct sluice_algorithm_info {
  sluice_algorithm algorithm;
  const char* name;
  const char* when_to_use;
  const char* limits;
  const char* source;
} sluice_algorithm_info;

SLUICE_API size_t sluice_algorithm_count(void);
SLUICE_API sluice_status sluice_algorithm_at(size_t index, sluice_algorithm_info* info);
SLUICE_API sluice_status sluice_algorithm_by_name(const char* name, sluice_algorithm* algorithm);

/* The work of selecting one row; see sluice::SelectWork. */
typedef struct SLUICE_ALIASED sluice_select_work {
  sluice_algorithm algorithm;
  int64_t elements_read;
} sluice_select_work;

/* Runs task(state, index, worker) for every index in [0, count), on any threads and in any order,
 * and returns when all are done. `worker` is below `workers`, and no two tasks run at once with the
 * same one. A null `run` is a serial loop. */
typedef void (*sluice_task)(void* state, int64_t index, int worker);
typedef struct SLUICE_ALIASED sluice_parallel_for {
  int workers;
  void* context;
  void (*run)(void* context, int64_t count, sluice_task task, void* state);
} sluice_parallel_for;

#define SLUICE_WORKSPACE_ALIGNMENT 64

/* Where and with what a call runs. */
typedef struct sluice_execution {
  uint32_t abi_version; /* by sluice_execution_init */
  sluice_backend backend;
  sluice_algorithm algorithm; /* the reference backend has one way only */
  sluice_parallel_for parallel;
  /* At least as many bytes as the ..._workspace_bytes function of the call answers, aligned to
   * SLUICE_WORKSPACE_ALIGNMENT. Its content afterwards means nothing. */
  void* workspace;
  size_t workspace_bytes;
  void* stream;             /* the CUDA stream, for views of device memory */
  sluice_select_work* work; /* null, or one a row: sluice_select and sluice_sample report here */
  size_t work_count;
} sluice_execution;

SLUICE_INIT void sluice_execution_init(sluice_execution* execution) {
  *execution = SLUICE_ZERO(sluice_execution);
  execution->abi_version = SLUICE_ABI_VERSION;
  execution->parallel.workers = 1;
}

#ifdef __cplusplus
}
#endif
