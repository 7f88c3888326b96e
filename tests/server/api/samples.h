// A vocabulary whose tokens are what writers trip over, and responses made of it.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "server/api/response/response_body.h"
#include "server/api/response/stream_writer.h"
#include "sluice/version.hpp"
#include "tests/text/vocabularies.h"

namespace sluice::test {

enum SampleToken : int32_t {
  kHello,
  kQuote,
  kEuroBegin,
  kEuroEnd,
  kEmoji,
  kEndMark,
  kLine,
  kWorld
};

// "Hello", a quote, the first two bytes and the last one of a euro sign, an emoji, a special token,
// a line feed, " world".
inline Tokenizer SampleTokenizer() {
  return ByteLevelTokenizer(
      {{"Hello"}, {"\""}, {"\xe2\x82"}, {"\xac"}, {"😀"}, Special("<end>"), {"\n"}, {" world"}});
}

inline server::ResponseHead SampleHead(server::Api api) {
  const bool is_chat = api == server::Api::kChat;
  return {.api = api,
          .id = is_chat ? "chatcmpl-1" : "cmpl-1",
          .created = 1700000000,
          .model = "a \"model\"",
          .seed = 18446744073709551615u};
}

// Of three tokens with two likely ones each.
struct SampleLogprobs {
  std::vector<int32_t> ids = {kHello, kEuroBegin, kEndMark};
  std::vector<float> logprobs = {-0.5f, -1.25f, -std::numeric_limits<float>::infinity()};
  std::vector<int32_t> ranks = {1, 3, 0};
  std::vector<int32_t> top_ids = {kHello, kQuote, kQuote, kLine, kEmoji, kEndMark};
  std::vector<float> top_logprobs = {-0.5f,  -1.0f,  -0.125f,
                                     -1e-7f, -0.25f, -std::numeric_limits<float>::infinity()};

  server::TokenLogprobs View() const { return {ids, logprobs, ranks, 2, top_ids, top_logprobs}; }
};

// Versions change; what is compared with a file does not.
inline std::string WithoutVersion(std::string text) {
  const std::string version = "\"sluice-" + std::string(kVersionString) + "\"";
  for (size_t at = text.find(version); at != std::string::npos; at = text.find(version, at)) {
    text.replace(at, version.size(), "\"sluice-VERSION\"");
  }
  return text;
}

}  // namespace sluice::test
