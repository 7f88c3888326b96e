#include "sluice/checkpoint.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/files/text_file.h"
#include "support/check.h"

namespace sluice {

struct Checkpoint::Parts {
  Model model;
  ModelText text;
  int64_t vocab = 0;
};

namespace {

// An ordinary token without weights means that the files are of two models. An added one, which
// only a template or a prompt may spell out, is what some repositories have beyond their weights.
void CheckTokens(const Tokenizer& tokenizer, std::string_view name, int64_t vocab) {
  for (int64_t id = vocab; id < tokenizer.size(); ++id) {
    const std::optional<std::string_view> token = tokenizer.Token(static_cast<int32_t>(id));
    if (!token.has_value() || tokenizer.IsSpecial(static_cast<int32_t>(id))) continue;
    ThrowInvalid(name, "token " + ToText(id) + ", " + ToText(*token),
                 "ids below the " + ToText(vocab) + " of the model's vocabulary");
  }
}

}  // namespace

Checkpoint Checkpoint::Open(const std::string& directory, const ModelOptions& options,
                            const ParallelFor& parallel) {
  // Quick refusals come before the weights.
  const ModelText text = ModelText::Open(directory);
  return Assemble(Model::Open(directory, options, parallel), text,
                  engine::TokenizerPath(directory));
}

Checkpoint Checkpoint::FromFiles(const CheckpointFiles& files, const ModelOptions& options,
                                 const ParallelFor& parallel) {
  const ModelText text = ModelText::FromFiles(files.text);
  return Assemble(Model::FromFiles({.config = files.text.config, .safetensors = files.safetensors},
                                   options, parallel),
                  text, "tokenizer.json");
}

Checkpoint Checkpoint::Assemble(const Model& model, const ModelText& text,
                                std::string_view tokenizer_name) {
  const int64_t vocab = model.info().vocab;
  CheckTokens(text.tokenizer(), tokenizer_name, vocab);
  return Checkpoint(std::make_shared<const Parts>(Parts{
      .model = model, .text = text, .vocab = std::min<int64_t>(vocab, text.tokenizer().size())}));
}

const Model& Checkpoint::model() const { return parts_->model; }
const ModelText& Checkpoint::text() const { return parts_->text; }
int64_t Checkpoint::vocab() const { return parts_->vocab; }

DenseHead Checkpoint::head() const {
  DenseHead head = parts_->model.head();
  head.weight.rows = parts_->vocab;
  if (!head.bias.empty()) head.bias = head.bias.first(static_cast<size_t>(parts_->vocab));
  return head;
}

}  // namespace sluice
