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

struct Checkpoint::SmallFiles {
  Tokenizer tokenizer;
  std::string tokenizer_name;  // of its file
  GenerationConfig generation_config = {};
  std::optional<ChatTemplate> chat_template = {};
  std::string bos_token = {};  // for the template; empty where the files name none
  std::string eos_token = {};
};

struct Checkpoint::Parts {
  Model model;
  SmallFiles small;
  int64_t vocab = 0;
  std::vector<int32_t> end_tokens = {};
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
  SmallFiles small{.tokenizer = is_json ? Tokenizer::FromJson(*tokenizer_text)
                                        : Tokenizer::FromSentencePiece(*tokenizer_text),
                   .tokenizer_name = name};
  Parse({.generation_config = generation_config,
         .tokenizer_config = tokenizer_config,
         .chat_template = chat_template},
        small);
  return Assemble(Model::Open(directory, options, parallel), std::move(small));
}

Checkpoint Checkpoint::FromFiles(const CheckpointFiles& files, const ModelOptions& options,
                                 const ParallelFor& parallel) {
  SmallFiles small{.tokenizer = Tokenizer::FromJson(files.tokenizer),
                   .tokenizer_name = "tokenizer.json"};
  Parse(files, small);
  return Assemble(Model::FromFiles(files.model, options, parallel), std::move(small));
}

// What files beside the tokenizer say.
void Checkpoint::Parse(const CheckpointFiles& files, SmallFiles& small) {
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
    small.bos_token = TokenText(fields, "bos_token");
    small.eos_token = TokenText(fields, "eos_token");
    if (template_text.empty()) template_text = TemplateText(fields);
  }
  if (!template_text.empty()) small.chat_template.emplace(template_text);
  if (!files.generation_config.empty()) {
    small.generation_config = ParseGenerationConfig(files.generation_config);
  }
}

Checkpoint Checkpoint::Assemble(const Model& model, SmallFiles small) {
  const ModelInfo& info = model.info();
  CheckTokens(small.tokenizer, small.tokenizer_name, info.vocab);
  Parts parts{.model = model, .small = std::move(small)};
  parts.vocab = std::min<int64_t>(info.vocab, parts.small.tokenizer.size());
  std::vector<int32_t>& ends = parts.end_tokens;
  ends = parts.small.generation_config.end_tokens;
  ends.insert(ends.end(), info.end_tokens.begin(), info.end_tokens.end());
  const auto cannot_be_drawn = [&](int32_t id) { return id >= parts.vocab; };
  std::erase_if(ends, cannot_be_drawn);
  if (ends.empty() && !parts.small.eos_token.empty()) {
    if (const auto id = parts.small.tokenizer.Id(parts.small.eos_token)) ends.push_back(*id);
  }
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  std::erase_if(ends, cannot_be_drawn);
  return Checkpoint(std::make_shared<const Parts>(std::move(parts)));
}

const Model& Checkpoint::model() const { return parts_->model; }
const Tokenizer& Checkpoint::tokenizer() const { return parts_->small.tokenizer; }
const GenerationConfig& Checkpoint::generation_config() const {
  return parts_->small.generation_config;
}
int64_t Checkpoint::vocab() const { return parts_->vocab; }
std::span<const int32_t> Checkpoint::end_tokens() const { return parts_->end_tokens; }
bool Checkpoint::has_chat_template() const { return parts_->small.chat_template.has_value(); }

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
    json.Key("bos_token").Value(parts_->small.bos_token);
    json.Key("eos_token").Value(parts_->small.eos_token);
  });
  return parts_->small.chat_template->Render(variables.view());
}

}  // namespace sluice
