#include "server/tokens.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/request/completion_request.h"
#include "server/api/request/field_names.h"
#include "server/api/request/tokens_request.h"
#include "server/completions/preparation.h"
#include "server/error_response.h"

namespace sluice::server {
namespace {

// Bodies up to this are read on the loop: a millisecond of encoding at most.
constexpr size_t kInlineBytes = size_t{16} << 10;

// A response that is made on another thread.
class MadeElsewhere final : public Answer {
 public:
  MadeElsewhere(Exchange& exchange, std::function<HttpResponse()> make, size_t bytes,
                LoopServices& services)
      : job_(std::make_shared<Job>(&exchange, std::move(make))) {
    services.Encode(
        [job = job_] {
          if (!job->is_gone) job->response = job->Make();
          job->make = nullptr;  // and the body with it
        },
        [job = job_] {
          if (job->exchange != nullptr) {
            job->exchange->Respond(std::move(job->response));
          }
        },
        bytes, exchange.group());
  }
  ~MadeElsewhere() override {
    job_->exchange = nullptr;
    job_->is_gone = true;
  }

 private:
  struct Job {
    Job(Exchange* to, std::function<HttpResponse()> what) : exchange(to), make(std::move(what)) {}
    HttpResponse Make() const {
      try {
        return make();
      } catch (...) {
        return ErrorResponse(ErrorOfException());
      }
    }

    Exchange* exchange;  // the loop's alone
    std::atomic<bool> is_gone = false;
    std::function<HttpResponse()> make;
    HttpResponse response = {.status = 503};  // where there is no memory for another
  };

  std::shared_ptr<Job> job_;
};

std::unique_ptr<Answer> RespondWith(Exchange& exchange, LoopServices& services,
                                    HttpResponse (*make)(const std::string&, const ServerState&),
                                    const ServerState& state) {
  const size_t bytes = exchange.request().body.size();
  if (bytes > kInlineBytes) {
    return std::make_unique<MadeElsewhere>(
        exchange,
        [body = std::make_shared<HttpBody>(exchange.TakeBody()), make, &state] {
          body->text.reserve(body->text.size() + 64);
          return make(body->text, state);
        },
        bytes, services);
  }
  exchange.Respond(make(exchange.request().body, state));
  return nullptr;
}

HttpResponse ResponseOf(std::string body, const std::vector<std::string>& unknown) {
  HttpResponse response{.body = std::move(body)};
  AddIgnoredFields(unknown, response);
  return response;
}

std::vector<int32_t> IdsOf(const TokenizeRequest& request, const ServerState& state) {
  const Tokenizer& tokenizer = state.text.tokenizer();
  if (!request.is_chat) {
    CheckEncodedBytes("prompt", request.prompt.size(), tokenizer, state.info.context);
    return tokenizer.Encode(request.prompt,
                            {.add_special_tokens = request.adds_special_tokens,
                             .parse_special_tokens = request.parses_special_tokens});
  }
  ChatText chat = state.text.RenderChatText(request.chat_variables);
  if (request.final_message.has_value()) EndWithMessage(chat, *request.final_message);
  CheckEncodedBytes("messages", chat.text.size(), tokenizer, state.info.context);
  const EncodeOptions options{.add_special_tokens = request.adds_special_tokens};
  return request.parses_special_tokens ? EncodeChat(tokenizer, chat.text, chat.own, options)
                                       : tokenizer.Encode(chat.text, options);
}

HttpResponse TokenizeText(const std::string& body, const ServerState& state) {
  const TokenizeRequest request = ParseTokenizeRequest(body, state.options.refuses_unknown_fields);
  CheckModelName(request.model, state);
  const std::vector<int32_t> ids = IdsOf(request, state);
  const Tokenizer& tokenizer = state.text.tokenizer();
  return ResponseOf(TokenizeBody(ids, state.info.context, tokenizer, request.returns_token_strs),
                    request.unknown);
}

HttpResponse DetokenizeIds(const std::string& body, const ServerState& state) {
  const DetokenizeRequest request =
      ParseDetokenizeRequest(body, state.options.refuses_unknown_fields);
  CheckModelName(request.model, state);
  const Tokenizer& tokenizer = state.text.tokenizer();
  const auto outside = std::ranges::find_if(
      request.tokens, [&](int32_t id) { return id < 0 || id >= tokenizer.size(); });
  if (outside != request.tokens.end()) {
    throw ApiFailure({.message = "tokens has " + std::to_string(*outside) +
                                 ", which is no id of this model: they are from 0 to " +
                                 std::to_string(tokenizer.size() - 1),
                      .param = "tokens"});
  }
  return ResponseOf(DetokenizeBody(tokenizer.Decode(request.tokens, false)), request.unknown);
}

}  // namespace

void CheckModelName(const std::string& name, const ServerState& state) {
  if (name.empty() || std::ranges::count(state.model_names, name) > 0) return;
  throw ApiFailure({.status = 404,
                    .message = "there is no model " + name + " here; GET /v1/models lists them",
                    .param = "model",
                    .code = "model_not_found"});
}

std::unique_ptr<Answer> Tokenize(Exchange& exchange, const ServerState& state,
                                 LoopServices& services) {
  return RespondWith(exchange, services, TokenizeText, state);
}

std::unique_ptr<Answer> Detokenize(Exchange& exchange, const ServerState& state,
                                   LoopServices& services) {
  return RespondWith(exchange, services, DetokenizeIds, state);
}

}  // namespace sluice::server
