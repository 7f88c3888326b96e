// The weights of a model, each checked against the shape that its configuration gives: views of the
// mapped files where those have what the forward pass reads, memory of their own where not.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "model/config.h"
#include "model/layer_table.h"
#include "model/safetensors.h"
#include "sluice/head.hpp"
#include "sluice/model.hpp"

namespace sluice::model {

// y = x W^T + bias, with W [rows, columns] in floating point or, where `codes` has rows, in int8.
struct Linear {
  MatrixView floats = {};
  Int8Matrix codes = {};
  std::vector<float> bias = {};

  bool is_int8() const { return codes.rows > 0; }
  size_t width() const { return static_cast<size_t>(is_int8() ? codes.columns : floats.columns); }
};

struct LayerWeights {
  std::vector<float> attention_norm, query_norm, key_norm, post_attention_norm;
  std::vector<float> ffn_norm, post_ffn_norm;
  Linear query, key, value, output;
  Linear gate, up, down;
};

// Memory that lives as long as the weights that point to it.
class WeightMemory {
 public:
  std::byte* Take(size_t bytes);

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  std::vector<std::unique_ptr<std::byte, Free>> blocks_;
};

struct Weights {
  MatrixView embedding = {};
  MatrixView head = {};  // the embedding's, where the model ties them
  std::vector<float> last_norm;
  std::vector<LayerWeights> layers;
  int64_t parameters = 0;
  size_t bytes = 0;  // that a token's forward pass and its head read
  WeightMemory memory;
};

// Throws Error naming the file, the tensor and what was expected, before it takes any memory. The
// bytes of the tensors must outlive the weights.
Weights ReadWeights(const ModelConfig& config, const StoredTensors& tensors,
                    const ModelOptions& options, const ParallelFor& parallel);

}  // namespace sluice::model
