// Requests with a grammar: they are held until it is compiled.
#include <algorithm>
#include <chrono>

#include "engine/engine_impl.h"
#include "engine/grammar/grammar_workers.h"
#include "engine/request_checks.h"
#include "support/check.h"

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kCompileWait{1};

}  // namespace

// The text ends where the grammar allows a stop token: its stop tokens end the output, and from the
// first token on. Null: the request has none to follow.
std::shared_ptr<engine::RequestGrammar> Engine::Impl::AddGrammar(ClientId client,
                                                                 EngineRequest& request) {
  if (!request.grammar.has_value()) return nullptr;
  if (options_.grammars == nullptr) engine::ThrowNoGrammars(request.grammar->kind);
  request.params.min_tokens = 0;
  TokenIds& stops = request.params.stop_token_ids;
  for (const int32_t id : options_.grammars->stop_tokens()) {
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  }
  if (request.max_tokens == 0) return nullptr;
  return options_.grammars->workers().Add(client.slot, *request.grammar, masks_);
}

// Null: the request has no budget.
std::unique_ptr<engine::ThinkingMask> Engine::Impl::MakeThinking(const EngineRequest& request,
                                                                 engine::RequestGrammar* grammar) {
  if (!request.thinking.has_value() || request.max_tokens == 0) return nullptr;
  if (!tokenizer_.has_value()) {
    ThrowInvalid("thinking", "a budget", "none: this engine has no text");
  }
  return std::make_unique<engine::ThinkingMask>(
      *tokenizer_, engine::ThinkingMaskOptions{
                       .budget = *request.thinking,
                       .end = spelled_ends_.Get(request.thinking->format, *tokenizer_),
                       .detokenizer = request.text.detokenizer,
                       .prompt = request.prompt,
                       .answer = grammar,
                       .stop_tokens = grammar != nullptr ? options_.grammars->stop_tokens()
                                                         : std::span<const int32_t>(),
                       .vocab = info_.vocab});
}

void Engine::Impl::TakeCompiled() {
  if (schedule_.held() == 0) return;
  const int64_t compiled = options_.grammars->workers().compiled();
  if (compiled == compiled_) return;
  compiled_ = compiled;
  LiveRequest* next = nullptr;
  for (LiveRequest* request = schedule_.first_held(); request != nullptr; request = next) {
    next = request->next;
    const engine::RequestGrammar& grammar = *request->grammar;
    if (grammar.state() == engine::RequestGrammar::State::kReady) {
      schedule_.Release(*request);
      ++counters_.grammars.compiled;
    } else if (grammar.state() == engine::RequestGrammar::State::kFailed) {
      Give(*request, {.address = request->address,
                      .end = GenerationEnd::kRejected,
                      .message = grammar.message(),
                      .code = grammar.code(),
                      .parameter = grammar.parameter()});
    }
  }
}

// So that a caller of Step does not spin where nothing else is to be done.
void Engine::Impl::AwaitCompiled(engine::Clock& clock) {
  const bool is_idle = schedule_.running() + schedule_.waiting() == schedule_.held();
  if (schedule_.held() == 0 || !is_idle || in_flight_ > 0 || !outputs_.empty()) return;
  counters_.own_ns += clock.Lap();
  options_.grammars->workers().AwaitCompiled(compiled_, kCompileWait);
  clock.Lap();
}

}  // namespace sluice
