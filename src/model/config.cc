#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/json_fields.h"
#include "sluice/tensor.hpp"
#include "support/check.h"

namespace sluice::model {
namespace {

constexpr std::string_view kFile = "config.json";
constexpr int64_t kLargestFile = int64_t{16} << 20;  // bytes; those in use have a few thousand
constexpr int64_t kMostLayers = 1024;
constexpr int64_t kWidest = int64_t{1} << 17;  // an int8 product of so many elements fits int32
constexpr int64_t kLargestHead = 1024;
constexpr int64_t kLongestContext = int64_t{1} << 24;  // an angle stays exact to 2^-29

// The properties of a family that its files do not say, or leave out where it is the default.
struct Family {
  std::string_view type;
  int64_t vocab = 0;     // 0: must be there
  int64_t heads = 0;     // 0: must be there
  int64_t kv_heads = 0;  // 0: as many as heads
  int64_t head_dim = 0;  // 0: dim / heads
  int64_t context = 0;   // 0: must be there
  double theta = 10000.0;
  int64_t window = 0;
  bool has_tied_head = false;
  bool is_gemma = false;
  bool has_qk_norm = false;
  bool has_qkv_bias = false;
  bool may_choose_bias = false;  // attention_bias, mlp_bias
  float attention_softcap = 0.0f, logit_softcap = 0.0f;
};

constexpr Family kFamilies[] = {
    {.type = "llama", .may_choose_bias = true},
    {.type = "mistral", .kv_heads = 8, .window = 4096},
    {.type = "qwen2", .has_qkv_bias = true},
    {.type = "qwen3", .head_dim = 128, .has_qk_norm = true, .may_choose_bias = true},
    {.type = "gemma2",
     .vocab = 256000,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .context = 8192,
     .window = 4096,
     .has_tied_head = true,
     .is_gemma = true,
     .attention_softcap = 50.0f,
     .logit_softcap = 30.0f},
    {.type = "gemma3_text",
     .vocab = 262208,
     .heads = 8,
     .kv_heads = 4,
     .head_dim = 256,
     .context = 131072,
     .theta = 1e6,
     .window = 4096,
     .has_tied_head = true,
     .is_gemma = true,
     .has_qk_norm = true},
};

const Family* FindFamily(std::string_view type) {
  const auto known = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                  [&](const Family& family) { return family.type == type; });
  return known == std::end(kFamilies) ? nullptr : known;
}

const Family& FamilyOf(const JsonFields& json) {
  const std::string type = json.Text("model_type", "");
  if (const Family* const known = FindFamily(type)) return *known;
  std::string all;
  for (const Family& family : kFamilies) {
    all.append(all.empty() ? "" : ", ").append(family.type);
  }
  json.Refuse("model_type", ToText(type), all + ", gemma3");
}

// 0 in the table stands for "none".
std::optional<int64_t> Default(int64_t value) {
  return value > 0 ? std::optional(value) : std::nullopt;
}

void ReadShape(const JsonFields& json, const Family& family, ModelInfo& info) {
  info.vocab = json.Integer("vocab_size", Default(family.vocab), 1, kMaxVocab);
  info.dim = json.Integer("hidden_size", std::nullopt, 1, kWidest);
  info.layers = json.Integer("num_hidden_layers", std::nullopt, 1, kMostLayers);
  info.ffn_dim = json.Integer("intermediate_size", std::nullopt, 1, kWidest);
  info.heads = json.Integer("num_attention_heads", Default(family.heads), 1, kWidest);
  info.kv_heads = json.Integer("num_key_value_heads",
                               family.kv_heads > 0 ? family.kv_heads : info.heads, 1, info.heads);
  if (info.heads % info.kv_heads != 0) {
    json.Refuse("num_key_value_heads", ToText(info.kv_heads),
                std::string("a divisor of num_attention_heads, ").append(ToText(info.heads)));
  }
  const int64_t head_dim = family.head_dim > 0 ? family.head_dim : info.dim / info.heads;
  if (!json.Has("head_dim") && family.head_dim == 0 && info.dim % info.heads != 0) {
    json.Refuse("hidden_size", ToText(info.dim),
                std::string("a multiple of num_attention_heads, ").append(ToText(info.heads)));
  }
  info.head_dim = json.Integer("head_dim", head_dim, 2, kLargestHead);
  if (info.head_dim % 2 != 0) json.Refuse("head_dim", ToText(info.head_dim), "an even number");
  CheckInRange(json.NameOf("num_attention_heads * head_dim"), info.heads * info.head_dim, 1,
               kWidest);
  info.context =
      json.Integer("max_position_embeddings", Default(family.context), 1, kLongestContext);
  info.has_tied_head = json.Flag("tie_word_embeddings", family.has_tied_head);
}

std::vector<int32_t> ReadEndTokens(const JsonFields& json, int64_t vocab) {
  std::vector<int32_t> tokens;
  const auto value = json.Find("eos_token_id");
  if (!value) return tokens;
  const auto add = [&](simdjson::dom::element one) {
    int64_t id = 0;
    if (one.get(id) != simdjson::SUCCESS || id < 0 || id >= vocab) {
      json.Refuse("eos_token_id", simdjson::minify(one), RangeText(0, vocab - 1));
    }
    tokens.push_back(static_cast<int32_t>(id));
  };
  simdjson::dom::array list;
  if (value->get(list) == simdjson::SUCCESS) {
    for (const simdjson::dom::element one : list) add(one);
  } else {
    add(*value);
  }
  return tokens;
}

Activation ReadActivation(const JsonFields& json, const Family& family) {
  const std::string_view field =
      family.is_gemma && json.Has("hidden_activation") ? "hidden_activation" : "hidden_act";
  const std::string name = json.Text(field, family.is_gemma ? "gelu_pytorch_tanh" : "silu");
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  json.Refuse(field, ToText(name), "silu, gelu_pytorch_tanh");
}

constexpr std::string_view kSliding = "sliding_attention", kFull = "full_attention";

void ReadWindows(const JsonFields& json, const Family& family, ModelConfig& config) {
  const int64_t layers = config.info.layers;
  config.layers.resize(static_cast<size_t>(layers));
  const bool is_qwen = family.type.substr(0, 4) == "qwen";
  if (family.window == 0 && !is_qwen) return;
  if (is_qwen && !json.Flag("use_sliding_window", false)) return;
  if (json.IsNull("sliding_window")) return;
  const int64_t window = json.Integer("sliding_window", Default(family.window), 1, kLongestContext);

  std::vector<bool> slides;
  if (const auto types = json.Find("layer_types")) {
    simdjson::dom::array list;
    if (types->get(list) != simdjson::SUCCESS || static_cast<int64_t>(list.size()) != layers) {
      json.Refuse("layer_types", simdjson::minify(*types), "one entry a layer");
    }
    for (const simdjson::dom::element type : list) {
      std::string_view name;
      if (type.get(name) != simdjson::SUCCESS || (name != kSliding && name != kFull)) {
        json.Refuse("layer_types", simdjson::minify(type),
                    std::string(kSliding).append(", ").append(kFull));
      }
      slides.push_back(name == kSliding);
    }
  } else {
    // Gemma 2 slides in every other layer, Gemma 3 in five of six, Qwen from a given layer on,
    // Mistral everywhere.
    const int64_t period = family.type == "gemma2" ? 2
                           : family.is_gemma
                               ? json.Integer("sliding_window_pattern", 6, 1, kMostLayers)
                               : 0;
    const int64_t first = is_qwen ? json.Integer("max_window_layers", 28, 0, kMostLayers) : 0;
    for (int64_t i = 0; i < layers; ++i) {
      slides.push_back(i >= first && (period == 0 || (i + 1) % period != 0));
    }
  }
  for (size_t i = 0; i < slides.size(); ++i) {
    if (slides[i]) config.layers[i].window = window;
  }
}

// "rope_parameters" is how transformers writes it since version 5, one object or one for each kind
// of layer; before that "rope_theta" and "rope_scaling" were two fields.
void ReadRotaries(const JsonFields& json, const Family& family, ModelConfig& config) {
  constexpr double kMostTheta = 1e12;
  const int64_t head_dim = config.info.head_dim, context = config.info.context;
  const auto make = [&](const std::optional<JsonFields>& scaling, double theta) {
    if (scaling) theta = scaling->Number("rope_theta", theta, 1.0 + 1e-6, kMostTheta);
    config.rotaries.push_back(MakeRotary(scaling ? &*scaling : nullptr, theta, head_dim, context));
  };
  const double theta = json.Number("rope_theta", family.theta, 1.0 + 1e-6, kMostTheta);
  if (const float turned = json.Number("partial_rotary_factor", 1.0, 0.0, 1.0); turned != 1.0f) {
    json.Refuse("partial_rotary_factor", ToText(turned), "1");
  }
  const auto parameters = json.Object("rope_parameters");
  const bool by_kind = parameters && (parameters->Has(kFull) || parameters->Has(kSliding));
  const auto full = by_kind ? parameters->Object(kFull)
                    : parameters && !parameters->Has("factor") && json.Has("rope_scaling")
                        ? json.Object("rope_scaling")
                    : parameters ? parameters
                                 : json.Object("rope_scaling");
  make(full, theta);
  if (family.type != "gemma3_text") return;
  // Gemma 3: layers that slide have angles of their own, without the scaling.
  make(by_kind ? parameters->Object(kSliding) : std::nullopt,
       json.Number("rope_local_base_freq", 10000.0, 1.0 + 1e-6, kMostTheta));
  for (LayerConfig& layer : config.layers) layer.rotary = layer.window > 0 ? 1 : 0;
}

float SoftCapOf(const JsonFields& json, std::string_view field, float otherwise) {
  if (json.IsNull(field)) return 0.0f;
  return json.Number(field, otherwise, 0.0, 1e6);
}

// int8 by rows, activations by token, as the library compressed-tensors names it.
bool ReadIsInt8(const JsonFields& json) {
  const auto quantization = json.Object("quantization_config");
  if (!quantization) return false;
  constexpr const char* kOnly = "int-quantized: 8 bits, symmetric, weights by channel";
  const std::string method = quantization->Text("quant_method", "");
  if (method != "compressed-tensors") {
    quantization->Refuse("quant_method", ToText(method), "compressed-tensors");
  }
  const std::string format = quantization->Text("format", "");
  if (format != "int-quantized") quantization->Refuse("format", ToText(format), kOnly);
  const auto groups = quantization->Object("config_groups");
  const auto group = groups ? groups->Object("group_0") : std::nullopt;
  const auto weights = group ? group->Object("weights") : std::nullopt;
  if (!weights) quantization->Refuse("config_groups", "without group_0.weights", kOnly);
  weights->Integer("num_bits", std::nullopt, 8, 8);
  if (!weights->Flag("symmetric", false)) weights->Refuse("symmetric", "false", "true");
  const std::string strategy = weights->Text("strategy", "");
  if (strategy != "channel") weights->Refuse("strategy", ToText(strategy), "\"channel\"");
  const auto inputs = group->Object("input_activations");
  if (!inputs) group->Refuse("input_activations", "missing", "8 bits, dynamic, by token");
  inputs->Integer("num_bits", std::nullopt, 8, 8);
  if (!inputs->Flag("symmetric", false)) inputs->Refuse("symmetric", "false", "true");
  if (!inputs->Flag("dynamic", false)) inputs->Refuse("dynamic", "false", "true");
  const std::string by = inputs->Text("strategy", "");
  if (by != "token") inputs->Refuse("strategy", ToText(by), "\"token\"");
  return true;
}

ModelConfig ReadConfig(const JsonFields& json, const Family& family, std::string architecture) {
  ModelConfig config;
  ReadShape(json, family, config.info);
  config.info.architecture = std::move(architecture);
  config.info.end_tokens = ReadEndTokens(json, config.info.vocab);
  config.activation = ReadActivation(json, family);
  config.norm_eps = json.Number("rms_norm_eps", 1e-6, 0.0, 1.0);
  config.norm_adds_one = family.is_gemma;
  config.has_post_norms = family.is_gemma;
  config.has_qk_norm = family.has_qk_norm;
  const bool has_bias =
      (family.may_choose_bias || family.is_gemma) && json.Flag("attention_bias", false);
  config.has_qkv_bias = family.has_qkv_bias || has_bias;
  config.has_output_bias = has_bias;
  config.has_ffn_bias = family.type == "llama" && json.Flag("mlp_bias", false);
  if (family.is_gemma) {
    config.embedding_scale = std::sqrt(static_cast<float>(config.info.dim));
    config.attention_softcap = SoftCapOf(json, "attn_logit_softcapping", family.attention_softcap);
    config.info.logit_softcap = SoftCapOf(json, "final_logit_softcapping", family.logit_softcap);
    if (json.Flag("use_bidirectional_attention", false)) {
      json.Refuse("use_bidirectional_attention", "true", "false");
    }
  }
  const double head_dim = static_cast<double>(config.info.head_dim);
  const double scaled_by =
      family.is_gemma ? json.Number("query_pre_attn_scalar", 256.0, 1e-3, 1e6) : head_dim;
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scaled_by));
  ReadWindows(json, family, config);
  ReadRotaries(json, family, config);
  return config;
}

std::string ArchitectureOf(const JsonFields& json) {
  simdjson::dom::array names;
  std::string_view name;
  const auto value = json.Find("architectures");
  if (value && value->get(names) == simdjson::SUCCESS && names.size() > 0 &&
      names.at(0).get(name) == simdjson::SUCCESS) {
    return std::string(name);
  }
  return "";
}

simdjson::dom::object ParseObject(simdjson::dom::parser& parser, std::string_view text) {
  CheckInRange(std::string(kFile).append(": bytes"), std::ssize(text), 0, kLargestFile);
  simdjson::dom::object object;
  if (const auto error = parser.parse(simdjson::padded_string(text)).get(object)) {
    ThrowInvalid(kFile, std::string("malformed (").append(simdjson::error_message(error)) + ")",
                 "one JSON object");
  }
  return object;
}

}  // namespace

ModelConfig ParseConfig(std::string_view text) {
  simdjson::dom::parser parser;
  const JsonFields json(ParseObject(parser, text), std::string(kFile));
  const std::string architecture = ArchitectureOf(json);
  ModelConfig config;
  // A model of text and images; only the text is read.
  const auto inner = json.Object("text_config");
  if (inner && json.Text("model_type", "") == "gemma3") {
    config = ReadConfig(*inner, *FindFamily("gemma3_text"), architecture);
    if (config.info.end_tokens.empty()) {
      config.info.end_tokens = ReadEndTokens(json, config.info.vocab);
    }
  } else {
    config = ReadConfig(json, FamilyOf(json), architecture);
  }
  config.is_int8 = ReadIsInt8(json);
  return config;
}

ConfigTokens ParseConfigTokens(std::string_view text) {
  simdjson::dom::parser parser;
  const JsonFields json(ParseObject(parser, text), std::string(kFile));
  const std::string type = json.Text("model_type", "");
  const Family* family = FindFamily(type);
  // Models of text and images have the text's apart.
  const auto inner = family == nullptr ? json.Object("text_config") : std::nullopt;
  if (type == "gemma3") family = FindFamily("gemma3_text");
  const JsonFields& fields = inner ? *inner : json;
  ConfigTokens tokens;
  if (family != nullptr || fields.Has("vocab_size")) {
    tokens.vocab =
        fields.Integer("vocab_size", Default(family == nullptr ? 0 : family->vocab), 1, kMaxVocab);
  }
  const int64_t limit = tokens.vocab > 0 ? tokens.vocab : kMaxVocab;
  tokens.end_tokens = ReadEndTokens(fields, limit);
  if (inner && tokens.end_tokens.empty()) tokens.end_tokens = ReadEndTokens(json, limit);
  return tokens;
}

}  // namespace sluice::model
