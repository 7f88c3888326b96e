#include "sluice_sampler.h"

#include <cfloat>
#include <cmath>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

constexpr sluice_limits kLimits = {FLT_MAX};  // of temperatures; llama.cpp has none

struct AlignedDelete {
  void operator()(std::byte* memory) const {
    operator delete[](memory, std::align_val_t(SLUICE_WORKSPACE_ALIGNMENT));
  }
};

// What one llama_sampler has in its ctx.
class Sampler {
 public:
  Sampler(int32_t vocab, const sluice_select_params& params, uint64_t seed)
      : params_(params), row_(static_cast<size_t>(vocab), -INFINITY) {
    key_.seed = seed;
    key_.stream = SLUICE_STREAM_TARGET;
    error_.reserve(256);
  }

  // Lets Sluice look at the parameters, and takes the workspace.
  sluice_status Start() {
    sluice_sampling_params all;
    sluice_sampling_params_init(&all);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) all.name = params_.name;
#include "sluice/params.def"
    if (const auto status = sluice_validate(&all, static_cast<int64_t>(row_.size()), &kLimits)) {
      return status;
    }
    sluice_execution_init(&execution_);
    const sluice_logits_view logits = Logits();
    const sluice_status status =
        sluice_select_workspace_bytes(&logits, &execution_, &execution_.workspace_bytes);
    if (status != SLUICE_OK) return status;
    workspace_.reset(new (std::align_val_t(SLUICE_WORKSPACE_ALIGNMENT))
                         std::byte[execution_.workspace_bytes]);
    execution_.workspace = workspace_.get();
    return SLUICE_OK;
  }

  void Accept() { ++key_.position; }
  void Reset() { key_.position = 0; }

  void Apply(llama_token_data_array* candidates) {
    candidates->selected = -1;
    for (float& logit : row_) logit = -INFINITY;
    for (size_t i = 0; i < candidates->size; ++i) {
      const llama_token_data& candidate = candidates->data[i];
      if (candidate.id < 0 || static_cast<size_t>(candidate.id) >= row_.size()) {
        error_ = "a candidate is not of the vocabulary";
        return;
      }
      row_[static_cast<size_t>(candidate.id)] = candidate.logit;
    }
    sluice_token_result token;
    if (Sample(&token) != SLUICE_OK) {
      error_ = sluice_last_error();
    } else if (token.status != SLUICE_ROW_OK) {
      error_ = sluice_row_status_name(token.status);
    } else {
      error_.clear();
      candidates->selected = IndexOf(*candidates, token.id);
    }
  }

  std::unique_ptr<Sampler> Copy() const {
    auto copy = std::make_unique<Sampler>(static_cast<int32_t>(row_.size()), params_, key_.seed);
    if (copy->Start() != SLUICE_OK) return nullptr;
    copy->key_ = key_;
    return copy;
  }
  void CopyState(const Sampler& other) { key_.position = other.key_.position; }

  const char* error() const { return error_.c_str(); }

 private:
  sluice_logits_view Logits() const {
    const auto vocab = static_cast<int64_t>(row_.size());
    return {row_.data(), 1, vocab, vocab, SLUICE_F32, {SLUICE_CPU, 0}};
  }

  sluice_status Sample(sluice_token_result* token) const {
    sluice_select_input input;
    sluice_select_input_init(&input);
    input.logits = Logits();
    input.params = &params_, input.param_count = 1;
    input.keys = &key_, input.key_count = 1;
    input.limits = kLimits;
    return sluice_sample(&input, SLUICE_DRAW_GUMBEL, token, 1, &execution_);
  }

  static int64_t IndexOf(const llama_token_data_array& candidates, llama_token id) {
    const auto place = static_cast<size_t>(id);  // while nobody sorted or dropped anything
    if (place < candidates.size && candidates.data[place].id == id) return id;
    for (size_t i = 0; i < candidates.size; ++i) {
      if (candidates.data[i].id == id) return static_cast<int64_t>(i);
    }
    return -1;
  }

  sluice_select_params params_;
  sluice_noise_key key_ = {};
  std::vector<float> row_;
  sluice_execution execution_ = {};
  std::unique_ptr<std::byte[], AlignedDelete> workspace_;
  std::string error_;
};

Sampler& In(const llama_sampler* sampler) { return *static_cast<Sampler*>(sampler->ctx); }

llama_sampler* Made(std::unique_ptr<Sampler> sampler);

// llama.cpp adds fields at the end; those that are not named here stay null, which it allows.
template <typename Interface>
Interface MakeInterface() {
  Interface made = {};
  made.name = [](const llama_sampler*) { return "sluice"; };
  made.accept = [](llama_sampler* sampler, llama_token) { In(sampler).Accept(); };
  made.apply = [](llama_sampler* sampler, llama_token_data_array* candidates) {
    In(sampler).Apply(candidates);
  };
  made.reset = [](llama_sampler* sampler) { In(sampler).Reset(); };
  made.clone = [](const llama_sampler* sampler) { return Made(In(sampler).Copy()); };
  made.free = [](llama_sampler* sampler) { delete &In(sampler); };
  if constexpr (requires { made.copy_state; }) {  // newer versions
    made.copy_state = [](const llama_sampler* from, llama_sampler* to) {
      In(to).CopyState(In(from));
    };
  }
  return made;
}

llama_sampler* Made(std::unique_ptr<Sampler> sampler) {
  static llama_sampler_i made = MakeInterface<llama_sampler_i>();
  if (sampler == nullptr) return nullptr;
  return llama_sampler_init(&made, sampler.release());
}

}  // namespace

llama_sampler* llama_sampler_init_sluice(int32_t n_vocab, const sluice_select_params* params,
                                         uint64_t seed) {
  if (n_vocab < 0) n_vocab = 0;  // Sluice says what is allowed
  try {
    auto sampler = std::make_unique<Sampler>(n_vocab, *params, seed);
    return sampler->Start() == SLUICE_OK ? Made(std::move(sampler)) : nullptr;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

const char* llama_sampler_sluice_error(const llama_sampler* sampler) { return In(sampler).error(); }
