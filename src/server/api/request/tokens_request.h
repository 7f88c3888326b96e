// The bodies of /tokenize and /detokenize, and their responses, as vLLM has them. Fields that are
// not known are ignored, or refused where the server takes known fields alone, and of one that
// comes twice the first one counts, as CompletionRequest has it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/tokenizer.hpp"

namespace sluice::server {

struct TokenizeRequest {
  std::string model = {};
  bool is_chat = false;
  std::string prompt = {};          // or
  std::string chat_variables = {};  // these two as CompletionRequest has them
  std::optional<std::string> final_message = {};
  bool adds_special_tokens = true;     // for chats by default not: their templates write them
  bool parses_special_tokens = false;  // parse_special_tokens; of chats true
  bool returns_token_strs = false;
  std::vector<std::string> unknown = {};  // names of fields that were ignored
};
TokenizeRequest ParseTokenizeRequest(std::string_view body, bool refuses_unknown = false);

struct DetokenizeRequest {
  std::string model = {};
  std::vector<int32_t> tokens = {};
  std::vector<std::string> unknown = {};
};
DetokenizeRequest ParseDetokenizeRequest(std::string_view body, bool refuses_unknown = false);

// {"count", "max_model_len", "tokens", "token_strs"}; strings as the vocabulary spells them
std::string TokenizeBody(std::span<const int32_t> ids, int64_t context, const Tokenizer& tokenizer,
                         bool returns_token_strs);
std::string DetokenizeBody(std::string_view text);  // {"prompt"}

struct ModelCard {
  std::string id;
  int64_t created = 0;
  int64_t context = 0;
};
std::string ModelBody(const ModelCard& card);
std::string ModelsBody(std::span<const ModelCard> cards);

}  // namespace sluice::server
