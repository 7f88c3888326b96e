// The stages of a tokenizer.json: its objects to steps. Throws Error for what is not supported.
#pragma once

#include <cstdint>
#include <vector>

#include "text/decoder.h"
#include "text/files/json_value.h"
#include "text/normalize/normalizer.h"
#include "text/normalize/pre_tokenizer.h"

namespace sluice::text {

DecoderSteps ReadDecoder(const JsonValue& json);
std::vector<NormalizerStep> ReadNormalizer(const JsonValue& json);

std::vector<PreTokenizerStep> ReadPreTokenizer(const JsonValue& json);

// Ids around a text.
struct Surroundings {
  std::vector<int32_t> before;
  std::vector<int32_t> after;
};
Surroundings ReadPostProcessor(const JsonValue& json);

}  // namespace sluice::text
