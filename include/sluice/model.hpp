// A decoder of the Llama family, as Hugging Face stores it: config.json and safetensors.
//
// Its forward pass (decoder.hpp) ends at the hidden states; head() is what projects them. A model
// is immutable and cheap to copy. Its files are mapped, not read, and must not change while it is
// in use. A file is data from strangers: everything it says is checked before memory is taken for
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sluice/execution.hpp"
#include "sluice/head.hpp"

namespace sluice {

enum class WeightFormat : uint8_t {
  kAsStored,  // fp32, bf16, fp16 or int8, as the files have them
  kInt8,  // matrices are rounded to eight bits with one scale a row; not the embeddings and head
};

struct ModelOptions {
  WeightFormat weights = WeightFormat::kAsStored;
  // Called now and then, on the caller's thread, with the bytes of weights that are done.
  void (*progress)(void* context, size_t bytes, size_t total) = nullptr;
  void* progress_context = nullptr;
};

// The files of a model that is in memory already. The bytes must outlive the model.
struct ModelFiles {
  std::string_view config = {};                                  // config.json
  std::span<const std::span<const std::byte>> safetensors = {};  // one, or all shards
};

struct ModelInfo {
  std::string architecture;  // "LlamaForCausalLM"
  int64_t vocab = 0;
  int64_t dim = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_dim = 0;
  int64_t context = 0;  // tokens of a sequence
  int64_t parameters = 0;
  size_t weight_bytes = 0;               // of what a token's forward pass and its head read
  bool has_tied_head = false;            // the head's weights are the embeddings
  float logit_softcap = 0.0f;            // see CapLogits; 0: none
  std::vector<int32_t> end_tokens = {};  // config.json's eos_token_id
};

class Model {
 public:
  // Copied where it is moved, so no model is ever empty.
  Model(const Model&) = default;
  Model& operator=(const Model&) = default;

  // Llama 2 and 3, Mistral, Qwen2, Qwen3, SmolLM2, Gemma 2, Gemma 3. Throws Error naming the file,
  // the tensor and what was expected.
  static Model Open(const std::string& directory, const ModelOptions& options = {},
                    const ParallelFor& parallel = {});
  static Model FromFiles(const ModelFiles& files, const ModelOptions& options = {},
                         const ParallelFor& parallel = {});

  const ModelInfo& info() const;
  // From the hidden states of Decoder::Forward to logits. The weights belong to the model.
  DenseHead head() const;

  class Impl;  // the library's own
  const Impl& impl() const { return *impl_; }

 private:
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

// logit = cap * tanh(logit / cap), in place, fp32: the last operation of Gemma 2, after its head.
// The order of the tokens stays, so a cap of 0, or greedy sampling, needs none of it.
void CapLogits(float cap, const MutableLogitsView& logits, const Execution& execution);

}  // namespace sluice
