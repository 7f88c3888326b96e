// The text side of a model, without its weights: tokenizer, chat template, the authors' defaults,
// the tokens that end an output. A frontend has this and an engine elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "sluice/generation_config.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

struct ChatText;

struct ChatMessage {
  std::string_view role;  // "system", "user", "assistant"
  std::string_view content;
};

// Files that are in memory already; an empty one counts as missing.
struct ModelTextFiles {
  std::string_view tokenizer = {};  // tokenizer.json
  std::string_view config = {};     // config.json: its end tokens and how many tokens it has
  std::string_view generation_config = {};
  std::string_view tokenizer_config = {};
  std::string_view chat_template = {};
};

// Immutable and cheap to copy.
class ModelText {
 public:
  // Copied where it is moved, so none is ever empty.
  ModelText(const ModelText&) = default;
  ModelText& operator=(const ModelText&) = default;

  // Reads small files only; no weights need to lie in the directory. Throws Error naming the file
  // and what was expected.
  static ModelText Open(const std::string& directory);
  static ModelText FromFiles(const ModelTextFiles& files);
  // A copy with another template.
  ModelText WithChatTemplate(std::string_view source) const;
  // A copy with other defaults of sampling: those of generation_config(). End tokens stay.
  ModelText WithParamDefaults(ParamDefaults defaults) const;

  const Tokenizer& tokenizer() const;
  const GenerationConfig& generation_config() const;

  // Each of these ends an output: those of generation_config.json and of config.json; if they have
  // none, that of tokenizer_config.json.
  std::span<const int32_t> end_tokens() const;

  // The model's number of tokens: config.json's vocab_size, which may be more than the tokenizer
  // has, as heads are padded. Without one, the tokenizer's.
  int64_t vocab() const;

  bool has_chat_template() const;
  const std::string& chat_template() const;  // its source; empty: there is none
  // The text that the model continues with its answer. Throws Error when there is no template, and
  // for what the template refuses.
  std::string RenderChat(std::span<const ChatMessage> messages) const;
  // As RenderChat, from JSON with all that messages and templates of models may have: {"messages":
  // [...], "add_generation_prompt": true, ...}. The tokens of the tokenizer's configuration are
  // added, bos_token and so on, unless the object has its own.
  std::string RenderChatJson(std::string_view variables) const;
  // As RenderChatJson, with what the template wrote itself: see chat_text.hpp.
  ChatText RenderChatText(std::string_view variables) const;

 private:
  struct Parts;
  static ModelText Make(Tokenizer tokenizer, const ModelTextFiles& files);
  explicit ModelText(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}

  std::shared_ptr<const Parts> parts_;
};

}  // namespace sluice
