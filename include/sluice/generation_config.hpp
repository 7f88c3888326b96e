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

}  // namespace sluice
