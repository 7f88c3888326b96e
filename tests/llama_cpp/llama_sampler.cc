// The functions of the stand-in header: each calls its namesake of the interface.
#include "llama.h"

llama_sampler* llama_sampler_init(llama_sampler_i* iface, llama_sampler_context_t ctx) {
  return new llama_sampler{iface, ctx};
}

const char* llama_sampler_name(const llama_sampler* smpl) { return smpl->iface->name(smpl); }

void llama_sampler_accept(llama_sampler* smpl, llama_token token) {
  smpl->iface->accept(smpl, token);
}

void llama_sampler_apply(llama_sampler* smpl, llama_token_data_array* cur_p) {
  smpl->iface->apply(smpl, cur_p);
}

void llama_sampler_reset(llama_sampler* smpl) { smpl->iface->reset(smpl); }

llama_sampler* llama_sampler_clone(const llama_sampler* smpl) { return smpl->iface->clone(smpl); }

void llama_sampler_free(llama_sampler* smpl) {
  smpl->iface->free(smpl);
  delete smpl;
}
