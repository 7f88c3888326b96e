#include "sluice/checkpoint.hpp"

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "engine/text_file.h"
#include "json/writer.h"
#include "model/json_fields.h"
#include "support/check.h"

namespace sluice {

struct Checkpoint::Parts {
  Model model;
  Tokenizer tokenizer;
  GenerationConfig generation_config = {};
  int64_t vocab = 0;
  std::vector<int32_t> end_tokens = {};
  std::optional<ChatTemplate> chat_template = {};
  std::string bos_token = {};  // for the template; empty where the files name none
  std::string eos_token = {};
};

namespace {

// A token of tokenizer_config.json: its text, or an object that has it as "content".
std::string TokenText(const model::JsonFields& fields, std::string_view name) {
  const auto value = fields.Find(name);
  if (!value.has_value()) return "";
  if (value->is_object()) return fields.Object(name)->Text("content", "");
  return fields.Text(name, "");
}

// The template, or of a list of named ones that which is called "default".
std::string TemplateText(const model::JsonFields& fields) {
  const auto value = fields.Find("chat_template");
  if (!value.has_value()) return "";
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) return fields.Text("chat_template", "");
  for (const simdjson::dom::element item : list) {
    simdjson::dom::object object;
    if (item.get(object) != simdjson::SUCCESS) continue;
    const model::JsonFields named(object, fields.NameOf("chat_template"));
    if (named.Text("name", "") == "default") return named.Text("template", "");
  }
  return "";
}

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
  const auto read = [&](const char* name) {
    return engine::ReadTextFile(directory + "/" + name).value_or("");
  };
  // What is quickly refused comes before the weights.
  const std::string generation_config = read("generation_config.json");
  const std::string tokenizer_config = read("tokenizer_config.json");
  const std::string chat_template = read("chat_template.jinja");
  std::string name = directory + "/tokenizer.json";
  std::optional<std::string> tokenizer_text = engine::ReadTextFile(name);
  if (!tokenizer_text.has_value()) {
    name = directory + "/tokenizer.model";
    tokenizer_text = engine::ReadTextFile(name);
  }
  if (!tokenizer_text.has_value()) {
    ThrowInvalid("model", ToText(directory) + ", without a tokenizer",
                 "a folder with config.json, *.safetensors and tokenizer.json or tokenizer.model");
  }
  const bool is_json = name.ends_with(".json");
  Tokenizer tokenizer = is_json ? Tokenizer::FromJson(*tokenizer_text)
                                : Tokenizer::FromSentencePiece(*tokenizer_text);
  return Assemble(Model::Open(directory, options, parallel), std::move(tokenizer), name,
                  {.generation_config = generation_config,
                   .tokenizer_config = tokenizer_config,
                   .chat_template = chat_template});
}

Checkpoint Checkpoint::FromFiles(const CheckpointFiles& files, const ModelOptions& options,
                                 const ParallelFor& parallel) {
  Tokenizer tokenizer = Tokenizer::FromJson(files.tokenizer);
  return Assemble(Model::FromFiles(files.model, options, parallel), std::move(tokenizer),
                  "tokenizer.json", files);
}

Checkpoint Checkpoint::Assemble(Model model, Tokenizer tokenizer, std::string_view tokenizer_name,
                                const CheckpointFiles& files) {
  const ModelInfo& info = model.info();
  CheckTokens(tokenizer, tokenizer_name, info.vocab);
  Parts parts{.model = model, .tokenizer = tokenizer};
  parts.vocab = std::min<int64_t>(info.vocab, tokenizer.size());

  std::string template_text(files.chat_template);
  if (!files.tokenizer_config.empty()) {
    constexpr const char* kName = "tokenizer_config.json";
    simdjson::dom::parser parser;
    simdjson::dom::object object;
    const std::string_view json = files.tokenizer_config;
    if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) {
      ThrowInvalid(kName, "no JSON object", "a JSON object");
    }
    const model::JsonFields fields(object, kName);
    parts.bos_token = TokenText(fields, "bos_token");
    parts.eos_token = TokenText(fields, "eos_token");
    if (template_text.empty()) template_text = TemplateText(fields);
  }
  if (!template_text.empty()) parts.chat_template.emplace(template_text);

  if (!files.generation_config.empty()) {
    parts.generation_config = ParseGenerationConfig(files.generation_config);
  }
  std::vector<int32_t>& ends = parts.end_tokens;
  ends = parts.generation_config.end_tokens;
  ends.insert(ends.end(), info.end_tokens.begin(), info.end_tokens.end());
  const auto cannot_be_drawn = [&](int32_t id) { return id >= parts.vocab; };
  std::erase_if(ends, cannot_be_drawn);
  if (ends.empty() && !parts.eos_token.empty()) {
    if (const auto id = tokenizer.Id(parts.eos_token)) ends.push_back(*id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::erase_if(ends, cannot_be_drawn);
  return Checkpoint(std::make_shared<const Parts>(std::move(parts)));
}

const Model& Checkpoint::model() const { return parts_->model; }
const Tokenizer& Checkpoint::tokenizer() const { return parts_->tokenizer; }
const GenerationConfig& Checkpoint::generation_config() const { return parts_->generation_config; }
int64_t Checkpoint::vocab() const { return parts_->vocab; }
std::span<const int32_t> Checkpoint::end_tokens() const { return parts_->end_tokens; }
bool Checkpoint::has_chat_template() const { return parts_->chat_template.has_value(); }

DenseHead Checkpoint::head() const {
  DenseHead head = parts_->model.head();
  head.weight.rows = parts_->vocab;
  if (!head.bias.empty()) head.bias = head.bias.first(static_cast<size_t>(parts_->vocab));
  return head;
}

std::string Checkpoint::RenderChat(std::span<const ChatMessage> messages) const {
  if (!has_chat_template()) {
    throw Error(ErrorCode::kUnavailable, "chat", "a conversation",
                "a model with chat_template.jinja, or with chat_template in "
                "tokenizer_config.json");
  }
  std::ostringstream variables;
  JsonWriter json(variables);
  json.Object([&] {
    json.Key("messages").Array([&] {
      for (const ChatMessage& message : messages) {
        json.Object([&] {
          json.Key("role").Value(message.role);
          json.Key("content").Value(message.content);
        });
      }
    });
    json.Key("add_generation_prompt").Value(true);
    json.Key("bos_token").Value(parts_->bos_token);
    json.Key("eos_token").Value(parts_->eos_token);
  });
  return parts_->chat_template->Render(variables.view());
}

}  // namespace sluice
