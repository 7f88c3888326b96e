#include "sluice/generation_config.hpp"

#include <limits>
#include <utility>

#include "engine/files/text_file.h"
#include "model/json_fields.h"

namespace sluice {
namespace {

// One id or a list of ids.
std::vector<int32_t> EndTokens(const model::JsonFields& fields) {
  constexpr std::string_view kName = "eos_token_id";
  std::vector<int32_t> ids;
  const auto add = [&](simdjson::dom::element value) {
    int64_t id = 0;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= kMaxVocab) {
      fields.Refuse(kName, simdjson::minify(value), "a token id, or a list of them");
    }
    ids.push_back(static_cast<int32_t>(id));
  };
  const auto value = fields.Find(kName);
  if (!value.has_value()) return ids;
  simdjson::dom::array list;
  if (value->get(list) != simdjson::SUCCESS) {
    add(*value);
  } else {
    for (const simdjson::dom::element id : list) add(id);
  }
  return ids;
}

}  // namespace

GenerationConfig ParseGenerationConfig(std::string_view json) {
  constexpr const char* kName = "generation_config.json";
  constexpr double kAny = static_cast<double>(std::numeric_limits<float>::max());
  simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(json.data(), json.size()).get(object) != simdjson::SUCCESS) {
    ThrowInvalid(kName, "no JSON object", "a JSON object");
  }
  const model::JsonFields fields(object, kName);
  GenerationConfig config;
  SamplingParams& params = config.params;
  // The ranges are Validate's to check; what is checked here is that they are numbers.
  const auto read = [&](float& value, std::string_view name) {
    value = fields.Number(name, static_cast<double>(value), -kAny, kAny);
  };
  read(params.temperature, "temperature");
  read(params.top_p, "top_p");
  read(params.min_p, "min_p");
  read(params.typical_p, "typical_p");
  read(params.repetition_penalty, "repetition_penalty");
  params.top_k = static_cast<int32_t>(
      fields.Integer("top_k", params.top_k, -1, std::numeric_limits<int32_t>::max()));
  config.end_tokens = EndTokens(fields);
  return config;
}

GenerationConfig OpenGenerationConfig(const std::string& directory) {
  const std::optional<std::string> json =
      engine::ReadTextFile(directory + "/generation_config.json");
  return json.has_value() ? ParseGenerationConfig(*json) : GenerationConfig{};
}

std::string_view Name(ParamDefaults defaults) {
  return defaults == ParamDefaults::kModel ? "auto" : "vllm";
}

ParamDefaults ParamDefaultsByName(std::string_view name) {
  for (const ParamDefaults defaults : {ParamDefaults::kModel, ParamDefaults::kLibrary}) {
    if (Name(defaults) == name) return defaults;
  }
  ThrowInvalid("generation_config", ToText(name), "auto or vllm");
}

SamplingParams StartingParams(const GenerationConfig& config, ParamDefaults defaults) {
  return defaults == ParamDefaults::kModel ? config.params : SamplingParams{};
}

}  // namespace sluice
