// From a body to what engines get: parsed, rendered, encoded, and found to fit. What a client can
// get wrong is found here, but for the ranges of parameters, which Client::Submit checks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/api/api_error.h"
#include "server/api/request/completion_request.h"
#include "server/completions/model_formats.h"
#include "sluice/model_text.hpp"

namespace sluice::server {

struct PreparedPrompt {
  std::vector<int32_t> ids = {};
  std::string echo = {};   // its text, where the output shall begin with it
  int64_t max_tokens = 0;  // never beyond what the context leaves
};

struct PreparedRequest {
  CompletionRequest asked = {};  // its prompts and messages are here:
  std::vector<PreparedPrompt> prompts = {};
  std::string model = {};  // the name that the response has
};

struct PreparationSettings {
  ModelText text;
  std::vector<std::string> model_names = {};
  std::vector<std::string> adapters = {};  // of these names
  RequestLimits limits = {};
  ModelFormats formats = {};
};

using Preparation = std::variant<PreparedRequest, ApiError>;

// The longest text that is encoded to its end, whatever the context: bytes.
size_t MostEncodedBytes(const Tokenizer& tokenizer, int64_t context);
// Throws ApiFailure naming `field` for a longer one.
void CheckEncodedBytes(std::string_view field, size_t bytes, const Tokenizer& tokenizer,
                       int64_t context);

// On any thread. context: the engine's. `is_gone`, where it is given, is called before each prompt
// is encoded: true ends the work, with an error that has no reader. Throws nothing.
Preparation Prepare(Api api, std::string_view body, int64_t context,
                    const PreparationSettings& settings, const std::function<bool()>& is_gone = {});

}  // namespace sluice::server
