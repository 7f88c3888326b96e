// A model and its text side: tokenizer, chat template, the tokens that end an output.
//
// The files are those of a repository of Hugging Face: config.json and *.safetensors (model.hpp),
// tokenizer.json or tokenizer.model, and where they are there generation_config.json,
// tokenizer_config.json and chat_template.jinja.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "sluice/generation_config.hpp"
#include "sluice/model.hpp"
#include "sluice/model_text.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

// Files that are in memory already. The weights must outlive the checkpoint.
struct CheckpointFiles {
  ModelTextFiles text = {};                                      // config.json is the model's too
  std::span<const std::span<const std::byte>> safetensors = {};  // one, or all shards
};

// Immutable and cheap to copy.
class Checkpoint {
 public:
  // Copied where it is moved, so no checkpoint is ever empty.
  Checkpoint(const Checkpoint&) = default;
  Checkpoint& operator=(const Checkpoint&) = default;

  // Throws Error naming the file and what was expected, also when tokenizer and model do not
  // belong together.
  static Checkpoint Open(const std::string& directory, const ModelOptions& options = {},
                         const ParallelFor& parallel = {});
  static Checkpoint FromFiles(const CheckpointFiles& files, const ModelOptions& options = {},
                              const ParallelFor& parallel = {});

  const Model& model() const;
  const ModelText& text() const;
  const Tokenizer& tokenizer() const { return text().tokenizer(); }
  const GenerationConfig& generation_config() const { return text().generation_config(); }
  std::span<const int32_t> end_tokens() const { return text().end_tokens(); }

  // Rows of the head that have a token. Many models have more, as padding, which must never be
  // drawn: head() leaves them out, so they cost nothing.
  int64_t vocab() const;
  DenseHead head() const;

 private:
  struct Parts;
  explicit Checkpoint(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  static Checkpoint Assemble(const Model& model, const ModelText& text,
                             std::string_view tokenizer_name);

  std::shared_ptr<const Parts> parts_;
};

}  // namespace sluice
