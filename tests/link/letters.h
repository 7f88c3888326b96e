// A small vocabulary: a letter a token, and a token that ends a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sluice/client.hpp"
#include "tests/text/vocabularies.h"

namespace sluice::test {

inline std::string LettersJson() {
  std::vector<TestToken> tokens;
  for (char c = 'a'; c <= 'z'; ++c) tokens.push_back({std::string(1, c)});
  tokens.push_back(Special("<end>"));
  return ByteLevelTokenizerJson(tokens);
}
inline Tokenizer Letters() { return Tokenizer::FromJson(LettersJson()); }
inline constexpr int32_t kEnd = 26;

inline std::vector<int32_t> Ids(std::string_view letters) {
  std::vector<int32_t> ids;
  for (const char c : letters) ids.push_back(c - 'a');
  return ids;
}

inline EngineInfo InfoOf(const Tokenizer& tokenizer, int32_t slots = 8) {
  EngineInfo info;
  info.model = "letters";
  info.vocab = tokenizer.size();
  info.context = 4096;
  info.max_requests = slots;
  info.max_client_requests = slots;
  info.max_logprobs = 20;
  info.tokenizer_hash = TokenizerHash(tokenizer);
  info.end_tokens = {kEnd};
  info.has_text = true;
  return info;
}

inline ClientRequest Asks(int64_t max_tokens = 100, std::vector<std::string> stops = {}) {
  ClientRequest request;
  request.prompt = {0};
  request.max_tokens = max_tokens;
  request.text.stops = std::move(stops);
  return request;
}

}  // namespace sluice::test
