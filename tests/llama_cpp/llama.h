/* A stand-in for the header of llama.cpp, written for this test: the names, fields and meanings
 * that a sampler needs, no more. llama_sampler.cc has its functions. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t llama_token;
typedef void* llama_sampler_context_t;
typedef struct ggml_backend_buffer_type* ggml_backend_buffer_type_t;
struct ggml_context;
struct ggml_cgraph;
struct ggml_tensor;
struct llama_sampler;
struct llama_sampler_data;

typedef struct llama_token_data {
  llama_token id;
  float logit;
  float p;
} llama_token_data;

typedef struct llama_token_data_array {
  llama_token_data* data;
  size_t size;
  int64_t selected; /* an index into data */
  bool sorted;
} llama_token_data_array;

struct llama_sampler_i {
  const char* (*name)(const struct llama_sampler* smpl);
  void (*accept)(struct llama_sampler* smpl, llama_token token);
  void (*apply)(struct llama_sampler* smpl, llama_token_data_array* cur_p);
  void (*reset)(struct llama_sampler* smpl);
  struct llama_sampler* (*clone)(const struct llama_sampler* smpl);
  void (*free)(struct llama_sampler* smpl);
#ifndef SLUICE_LLAMA_WITHOUT_BACKENDS /* as it was before llama.cpp sampled on GPUs */
  bool (*backend_init)(struct llama_sampler* smpl, ggml_backend_buffer_type_t buft,
                       uint32_t n_outputs_max_per_seq);
  void (*backend_accept)(struct llama_sampler* smpl, struct ggml_context* ctx,
                         struct ggml_cgraph* gf, struct ggml_tensor* selected_token);
  void (*backend_apply)(struct llama_sampler* smpl, struct ggml_context* ctx,
                        struct ggml_cgraph* gf, struct llama_sampler_data* data);
  void (*backend_set_input)(struct llama_sampler* smpl);
  void (*backend_reset)(struct llama_sampler* smpl);
  void (*copy_state)(const struct llama_sampler* src, struct llama_sampler* dst);
#endif
};

struct llama_sampler {
  struct llama_sampler_i* iface;
  llama_sampler_context_t ctx;
};

struct llama_sampler* llama_sampler_init(struct llama_sampler_i* iface,
                                         llama_sampler_context_t ctx);
const char* llama_sampler_name(const struct llama_sampler* smpl);
void llama_sampler_accept(struct llama_sampler* smpl, llama_token token);
void llama_sampler_apply(struct llama_sampler* smpl, llama_token_data_array* cur_p);
void llama_sampler_reset(struct llama_sampler* smpl);
struct llama_sampler* llama_sampler_clone(const struct llama_sampler* smpl);
void llama_sampler_free(struct llama_sampler* smpl);

#ifdef __cplusplus
}
#endif
