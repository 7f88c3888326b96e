// config.json: what a model of the Llama family is, with the defaults of its family filled in.
#pragma once

#include <string_view>
#include <vector>

#include "model/layer_table.h"
#include "model/rotary.h"
#include "sluice/model.hpp"

namespace sluice::model {

struct LayerConfig {
  int64_t window = 0;  // a position sees so many last ones, itself included; 0: all
  int rotary = 0;      // of ModelConfig::rotaries
};

struct ModelConfig {
  ModelInfo info;  // all but what only the weights have
  Activation activation = Activation::kSilu;
  float norm_eps = 0.0f;
  bool norm_adds_one = false;   // Gemma stores the weights of its norms less one
  bool has_post_norms = false;  // Gemma: norms after attention and ffn as well
  bool has_qk_norm = false;     // of each head's queries and keys
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // of attention
  bool has_ffn_bias = false;
  bool is_int8 = false;  // matrices are int8 with one scale a row (compressed-tensors)
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;
  float attention_softcap = 0.0f;  // 0: none
  std::vector<Rotary> rotaries;
  std::vector<LayerConfig> layers;
};

// Throws Error naming the field.
ModelConfig ParseConfig(std::string_view json);

// The part that text needs, also where the model is of none of the families here.
struct ConfigTokens {
  int64_t vocab = 0;  // 0: not given
  std::vector<int32_t> end_tokens;
};
ConfigTokens ParseConfigTokens(std::string_view json);

}  // namespace sluice::model
