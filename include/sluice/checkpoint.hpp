// A model and what text needs beside it: tokenizer, chat template, the tokens that end an output.
//
// The files are those of a repository of Hugging Face: config.json and *.safetensors (model.hpp),
// tokenizer.json or tokenizer.model, and where they are there generation_config.json,
// tokenizer_config.json and chat_template.jinja.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/chat_template.hpp"
#include "sluice/generation_config.hpp"
#include "sluice/model.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

// Files that are in memory already; those that are empty are not there. The weights must outlive
// the checkpoint.
struct CheckpointFiles {
  ModelFiles model = {};
  std::string_view tokenizer = {};  // tokenizer.json
  std::string_view generation_config = {};
  std::string_view tokenizer_config = {};
  std::string_view chat_template = {};
};

struct ChatMessage {
  std::string_view role;  // "system", "user", "assistant"
  std::string_view content;
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
  const Tokenizer& tokenizer() const;
  const GenerationConfig& generation_config() const;

  // Rows of the head that have a token. Many models have more, as padding, which must never be
  // drawn: head() leaves them out, and so nobody pays for them.
  int64_t vocab() const;
  DenseHead head() const;

  // Each of these ends an output: those of generation_config.json and of config.json; if they have
  // none, that of tokenizer_config.json.
  std::span<const int32_t> end_tokens() const;

  bool has_chat_template() const;
  // The text that the model continues with its answer. Throws Error when there is no template, and
  // for what the template refuses.
  std::string RenderChat(std::span<const ChatMessage> messages) const;

 private:
  struct Parts;
  struct SmallFiles;  // all but the model's
  explicit Checkpoint(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  static void Parse(const CheckpointFiles& files, SmallFiles& small);
  static Checkpoint Assemble(const Model& model, SmallFiles small);

  std::shared_ptr<const Parts> parts_;
};

}  // namespace sluice
