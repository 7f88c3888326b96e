// A Llama of random weights that is made in the test, with the vocabulary of a fixture.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "sluice/checkpoint.hpp"
#include "tests/support/random.h"

namespace sluice::test {

struct TinyOptions {
  int64_t vocab = 427;  // that of the tokenizer
  int64_t context = 64;
  uint64_t seed = 1;
  // Rows of the embeddings from here on are so large that they would win every draw.
  int64_t first_loud_row = INT64_MAX;
  bool is_gemma = false;  // Gemma 2, whose logits are capped
  std::string end_tokens = "null";
};

// The files of a checkpoint, to be spoilt or written to a folder.
class TinyFiles {
 public:
  explicit TinyFiles(const TinyOptions& options = {}) : options_(options), random_(options.seed) {
    config = Config();
    std::ifstream file(std::string(SLUICE_FIXTURES) + "/tokenizers/llama3.json", std::ios::binary);
    tokenizer = {std::istreambuf_iterator<char>(file), {}};
    MakeWeights();
  }

  CheckpointFiles view() {
    shard_ = std::as_bytes(std::span(weights));
    return {.text = {.tokenizer = tokenizer,
                     .config = config,
                     .generation_config = generation_config,
                     .tokenizer_config = tokenizer_config,
                     .chat_template = chat_template},
            .safetensors = {&shard_, 1}};
  }

  std::string config;
  std::string tokenizer;
  std::string weights;
  std::string generation_config;
  std::string tokenizer_config;
  std::string chat_template;

 private:
  static constexpr int64_t kDim = 32;
  static constexpr int64_t kHeads = 4;
  static constexpr int64_t kFfn = 48;
  static constexpr int64_t kLayers = 2;

  std::string Config() const {
    const auto field = [](const char* name, int64_t value) {
      return std::string("\"") + name + "\":" + std::to_string(value) + ",";
    };
    std::string json = options_.is_gemma
                           ? R"({"architectures":["Gemma2ForCausalLM"],"model_type":"gemma2",)"
                             R"("query_pre_attn_scalar":8,"final_logit_softcapping":2.0,)"
                             R"("hidden_activation":"gelu_pytorch_tanh",)"
                           : R"({"architectures":["LlamaForCausalLM"],"model_type":"llama",)"
                             R"("hidden_act":"silu",)";
    json += field("vocab_size", options_.vocab) + field("hidden_size", kDim) +
            field("intermediate_size", kFfn) + field("num_hidden_layers", kLayers) +
            field("num_attention_heads", kHeads) + field("num_key_value_heads", kHeads / 2) +
            field("head_dim", kDim / kHeads) + field("max_position_embeddings", options_.context);
    return json + R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true,)" +
           R"("eos_token_id":)" + options_.end_tokens + "}";
  }

  void Add(const std::string& name, int64_t rows, int64_t columns, double deviation,
           double mean = 0.0) {
    std::vector<float> values;
    for (int64_t i = 0; i < rows * std::max<int64_t>(columns, 1); ++i) {
      const bool is_loud = columns > 0 && i / columns >= options_.first_loud_row &&
                           name == "model.embed_tokens.weight";
      values.push_back(
          static_cast<float>(mean + (is_loud ? 8.0 : 1.0) * deviation * random_.Normal()));
    }
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    const std::string shape =
        std::to_string(rows) + (columns > 0 ? "," + std::to_string(columns) : "");
    header_ += (header_.empty() ? "{\"" : ",\"") + name + R"(":{"dtype":"F32","shape":[)" + shape +
               R"(],"data_offsets":[)" + std::to_string(begin) + "," +
               std::to_string(data_.size()) + "]}";
  }

  void MakeWeights() {
    // Logits of about N(0, 2.8).
    Add("model.embed_tokens.weight", options_.vocab, kDim, 0.5);
    const auto norm = [&](const std::string& name) {
      Add(name, kDim, 0, 0.1, options_.is_gemma ? 0.0 : 1.0);  // Gemma adds one itself
    };
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = "model.layers." + std::to_string(layer) + ".";
      norm(prefix + "input_layernorm.weight");
      norm(prefix + "post_attention_layernorm.weight");
      if (options_.is_gemma) {
        norm(prefix + "pre_feedforward_layernorm.weight");
        norm(prefix + "post_feedforward_layernorm.weight");
      }
      Add(prefix + "self_attn.q_proj.weight", kDim, kDim, 0.3);
      Add(prefix + "self_attn.k_proj.weight", kDim / 2, kDim, 0.3);
      Add(prefix + "self_attn.v_proj.weight", kDim / 2, kDim, 0.3);
      Add(prefix + "self_attn.o_proj.weight", kDim, kDim, 0.3);
      Add(prefix + "mlp.gate_proj.weight", kFfn, kDim, 0.3);
      Add(prefix + "mlp.up_proj.weight", kFfn, kDim, 0.3);
      Add(prefix + "mlp.down_proj.weight", kDim, kFfn, 0.3);
    }
    norm("model.norm.weight");
    header_ += "}";
    header_.resize((header_.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header_.size();
    weights.assign(reinterpret_cast<const char*>(&size), sizeof(size));
    weights += header_ + data_;
  }

  TinyOptions options_;
  Random random_;
  std::string header_;
  std::string data_;
  std::span<const std::byte> shard_;
};

}  // namespace sluice::test
