// Any bytes as the body of a request: refused with a status of the client's, or a request within
// its limits, of which what the template gets is JSON.
//
// The first byte says the route.
#include <simdjson.h>

#include <string>
#include <string_view>

#include "server/api/api_error.h"
#include "server/api/request/completion_request.h"
#include "server/api/request/tokens_request.h"
#include "tests/fuzz/bytes.h"

namespace sluice::fuzz {
namespace {

using server::Api;

void CheckVariables(const std::string& variables) {
  static simdjson::dom::parser parser;
  simdjson::dom::element root;
  // Whole numbers beyond 64 bits are JSON that this parser does not take.
  const simdjson::error_code error = parser.parse(variables).get(root);
  if (error == simdjson::NUMBER_ERROR) return;
  Check(error == simdjson::SUCCESS);
  simdjson::dom::array messages;
  Check(root["messages"].get(messages) == simdjson::SUCCESS && messages.size() > 0);
}

void ReadCompletion(Api api, std::string_view body) {
  const server::RequestLimits limits;
  const server::CompletionRequest request = server::ParseCompletionRequest(api, body, {}, limits);
  Check(request.n >= 1 && request.n <= limits.choices);
  Check(request.text.stops.size() <= static_cast<size_t>(limits.stops));
  for (const std::string& stop : request.text.stops) {
    Check(!stop.empty() && stop.size() <= limits.stop_bytes);
  }
  Check(request.logprobs.value_or(0) >= 0 && request.logprobs.value_or(0) <= limits.logprobs);
  Check(request.params.temperature <= limits.max_temperature);
  if (server::IsChat(api)) {
    CheckVariables(request.chat_variables);
    return;
  }
  Check(!request.prompts.empty());
  Check(request.prompts.size() * static_cast<size_t>(request.n) <=
        static_cast<size_t>(limits.choices));
}

void Run(uint8_t route, std::string_view body) {
  switch (route % 8) {
    case 0:
      return ReadCompletion(Api::kCompletions, body);
    case 1:
      return ReadCompletion(Api::kChat, body);
    case 2: {
      const server::TokenizeRequest request = server::ParseTokenizeRequest(body);
      if (request.is_chat) CheckVariables(request.chat_variables);
      return;
    }
    case 4:
      return ReadCompletion(Api::kMessages, body);
    case 5:
      return ReadCompletion(Api::kCountTokens, body);
    case 6:
      return ReadCompletion(Api::kResponses, body);
    default:
      for (const int32_t id : server::ParseDetokenizeRequest(body).tokens) Check(id >= 0);
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  try {
    sluice::fuzz::Run(data[0], {reinterpret_cast<const char*>(data) + 1, size - 1});
  } catch (const sluice::server::ApiFailure& failure) {
    sluice::fuzz::Check(failure.error().status == 400 && !failure.error().message.empty());
    const std::string body = sluice::server::ErrorBody(failure.error());
    simdjson::dom::parser parser;
    sluice::fuzz::Check(parser.parse(body).error() == simdjson::SUCCESS);
  }
  return 0;
}
