// generation_config.json: what the authors of a model say about generating with it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/params.hpp"

namespace sluice {

struct GenerationConfig {
  // temperature, top_k, top_p, min_p, typical_p and repetition_penalty where the file has them; a
  // user's own wish comes first. do_sample is not read: temperature 0 is greedy.
  SamplingParams params = {};
  std::vector<int32_t> end_tokens = {};  // eos_token_id
};

// Throws Error naming the field that cannot be. Fields that are none of these are passed over.
GenerationConfig ParseGenerationConfig(std::string_view json);

// That of the folder of a model, which need not have one.
GenerationConfig OpenGenerationConfig(const std::string& directory);

// Where the parameters of a request start, on every surface: the command, the server, clients in
// C++ and in Python. The caller's values replace them. The names are those of vLLM's option
// generation_config.
enum class ParamDefaults : uint8_t {
  kModel,    // "auto": the model's generation_config.json
  kLibrary,  // "vllm": SamplingParams{}, whatever the model's file says
};
std::string_view Name(ParamDefaults defaults);
ParamDefaults ParamDefaultsByName(std::string_view name);

SamplingParams StartingParams(const GenerationConfig& config,
                              ParamDefaults defaults = ParamDefaults::kModel);

}  // namespace sluice
