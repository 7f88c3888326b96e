// The calls of an Engine's clients, and the end of a runner. The steps are in engine_step.cc.
#include "sluice/engine.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/grammar/grammar_workers.h"
#include "engine/request_checks.h"
#include "support/check.h"

namespace sluice {
namespace {

constexpr size_t kUsualOutputs = 1024;  // of a step; more take memory when they are submitted
// Output tokens that a request has room for from the beginning; more take memory as they come.
constexpr int64_t kReservedTokens = 1 << 16;
constexpr size_t kUsualText = 4096;  // bytes that the tokens of a step become

const EngineOptions& Checked(const EngineOptions& options) {
  CheckInRange("steps_in_flight", options.steps_in_flight, 0, 1);
  CheckInRange("max_clients", options.max_clients, 1, 1 << 20);
  CheckInRange("max_client_requests", options.max_client_requests, 1, 1 << 20);
  CheckInRange("max_waiting", options.max_waiting, 1, INT64_MAX);
  CheckInRange("max_waiting_tokens", options.max_waiting_tokens, 1, INT64_MAX);
  CheckInRange("step_tokens", options.step_tokens, 0, INT64_MAX);
  return options;
}

const RunnerInfo& InfoOf(const StepRunner& runner) {
  engine::CheckRunnerInfo(runner.info());
  return runner.info();
}

// See EngineOptions::max_waiting.
void CheckShare(const char* what, int64_t of_all, int64_t of_client, int64_t most,
                int64_t clients) {
  if (of_all > most) {
    throw Error(ErrorCode::kExhausted, what, ToText(of_all), RangeText(0, most));
  }
  const int64_t share = std::max<int64_t>(most / clients, 1);
  if (of_client <= share || of_all <= most / 2) return;
  throw Error(ErrorCode::kExhausted, std::string(what) + " of one client", ToText(of_client),
              RangeText(0, share));
}

}  // namespace

Engine::Impl::Impl(StepRunner& runner, std::optional<Tokenizer> tokenizer,
                   const EngineOptions& options)
    : runner_(runner),
      info_(InfoOf(runner)),
      tokenizer_(std::move(tokenizer)),
      options_(Checked(options)),
      clients_(options.max_clients, options.max_client_requests),
      schedule_(info_, options) {
  if (options_.grammars != nullptr) {
    CheckInRange("grammars.vocab()", options_.grammars->vocab(), info_.vocab, info_.vocab);
  }
  for (PlannedStep& step : steps_) {
    step.Reserve(static_cast<size_t>(schedule_.slots()), static_cast<size_t>(info_.max_prefixes));
  }
  spare_answers_.resize(kUsualOutputs);
  outputs_.reserve(kUsualOutputs);
  text_.reserve(kUsualText);
  Count();
}

Engine::Impl::~Impl() {
  try {
    while (in_flight_ > 0 && !runner_threw_) {
      --in_flight_;
      runner_.Await();
    }
  } catch (...) {  // no client is left for the error
  }
  LiveRequest* request = schedule_.AnyLive();
  for (; request != nullptr; request = schedule_.AnyLive()) {
    schedule_.Remove(*request);
    if (request->rows_in_flight == 0) Bury(*request);
  }
  for (const PlannedStep& step : steps_) {
    for (LiveRequest* const with_row : step.requests) {
      if (with_row->rows_in_flight > 0 && --with_row->rows_in_flight == 0) Bury(*with_row);
    }
  }
  FreeDead();
}

void Engine::Impl::Count() {
  counters_.running = schedule_.running();
  counters_.waiting = schedule_.waiting();
  counters_.free_pages = schedule_.free_pages();
  counters_.preemptions = schedule_.preemptions();
  counters_.cached_tokens = schedule_.cached_tokens();
  GrammarCounters& grammars = counters_.grammars;
  grammars.compiling = schedule_.held();
  grammars.masks = masks_.masks.load(std::memory_order_relaxed);
  grammars.mask_waits = masks_.waits.load(std::memory_order_relaxed);
  grammars.mask_wait_ns = masks_.wait_ns.load(std::memory_order_relaxed);
}

void Engine::Impl::RemoveClient(ClientId client) {
  if (!clients_.Has(client)) return;
  for (const engine::Place& place : clients_.PlacesOf(client)) {
    if (place.request == nullptr) continue;
    place.request->is_silent = true;
    MarkAborted(*place.request);
  }
  clients_.Remove(client);
}

void Engine::Impl::Abort(ClientId client, RequestAddress address) {
  const engine::Place* const place = clients_.Find(client, address);
  if (place == nullptr) {
    ++counters_.stale_aborts;
  } else if (place->request != nullptr) {
    MarkAborted(*place->request);
  }
}

void Engine::Impl::MarkAborted(LiveRequest& request) {
  if (request.is_aborted) return;
  request.is_aborted = true;
  request.next_aborted = first_aborted_;
  first_aborted_ = &request;
}

// Memory for the output of one more request.
void Engine::Impl::ReserveOutput() {
  const auto live = static_cast<size_t>(counters_.requests - counters_.ended) + 1;
  if (outputs_.capacity() < live) outputs_.reserve(2 * live);
  if (spare_answers_.empty()) spare_answers_.emplace_back();
}

void Engine::Impl::Submit(ClientId client, EngineRequest request) {
  engine::Place& place = clients_.FreePlace(client, request.address);
  ReserveOutput();
  Answer& answer = spare_answers_.front();
  answer.client = client;
  answer.address = request.address;
  answer.end = GenerationEnd::kRejected;
  answer.code = ErrorCode::kInvalidValue;
  answer.message.clear();
  answer.parameter.clear();
  place.generation = request.address.generation;
  ++counters_.requests;
  try {
    try {
      if (is_lost_) {
        answer.code = ErrorCode::kUnavailable;
        answer.message.append("the engine is lost: ").append(lost_message_);
      } else {
        place.request = Accept(client, request);
        if (place.request == nullptr) answer.end = GenerationEnd::kLength;
      }
    } catch (const Error& error) {
      answer.code = error.code();
      answer.message = error.what();
      const bool is_its =
          error.code() == ErrorCode::kInvalidValue || error.code() == ErrorCode::kInvalidType;
      if (is_its) answer.parameter = error.parameter();
    }
  } catch (const std::bad_alloc&) {
    answer.code = ErrorCode::kExhausted;
    answer.message = engine::kNoMemory;
    answer.parameter.clear();
  }
  if (place.request == nullptr) {
    place.is_answered = true;
    answers_.splice(answers_.end(), spare_answers_, spare_answers_.begin());
  }
  Count();
}

// Returns null for a request without output tokens and without prompt tokens to score.
engine::LiveRequest* Engine::Impl::Accept(ClientId client, EngineRequest& request) {
  engine::CheckRequest(request, info_);
  const int64_t prompt_size = std::ssize(request.prompt);
  const int64_t room = engine::RoomOf(request, info_);
  const int64_t most_pages = schedule_.MostPages(prompt_size, room);
  if (most_pages > info_.pages) {
    ThrowInvalid(
        "prompt and max_tokens",
        ToText(prompt_size) + " and " + ToText(room) + " tokens, " + ToText(most_pages) +
            " pages of the cache",
        "at most " + ToText(info_.pages) + " pages of " + ToText(info_.page_tokens) + " tokens");
  }
  const engine::Waiting& all = schedule_.new_waiting();
  const engine::Waiting& its = schedule_.new_waiting(client);
  CheckShare("waiting requests", all.requests + 1, its.requests + 1, options_.max_waiting,
             clients_.count());
  // A client without a waiting request is never over its share, however long this prompt is.
  CheckShare("tokens of waiting prompts", all.tokens + prompt_size,
             its.requests == 0 ? 0 : its.tokens + prompt_size, options_.max_waiting_tokens,
             clients_.count());
  std::shared_ptr<engine::RequestGrammar> grammar = AddGrammar(client, request);
  std::unique_ptr<engine::ThinkingMask> thinking = MakeThinking(request, grammar.get());
  engine::EngineStop stop(request, tokenizer_ ? &*tokenizer_ : nullptr, stop_lists_,
                          options_.stops);
  const bool is_scored = request.prompt_logprobs.has_value() && prompt_size > 1;
  if (room == 0 && !is_scored) return nullptr;
  auto live = std::make_unique<LiveRequest>(client, request, room, std::move(stop));
  live->most_pages = most_pages;
  live->tokens.reserve(
      static_cast<size_t>(prompt_size + std::min(kReservedTokens, room + info_.max_given_tokens)));
  live->grammar = std::move(grammar);
  live->thinking = std::move(thinking);
  const bool is_ready =
      live->grammar == nullptr || live->grammar->state() == engine::RequestGrammar::State::kReady;
  if (live->grammar != nullptr && is_ready) ++counters_.grammars.cached;
  is_ready ? schedule_.Add(*live) : schedule_.Hold(*live);
  return live.release();
}

std::span<const EngineOutput> Engine::Impl::Fail(std::string_view message) {
  if (!has_kept_outputs_) BeginOutputs();
  std::erase_if(outputs_, [this](const EngineOutput& kept) { return !clients_.Has(kept.client); });
  has_kept_outputs_ = false;
  lost_message_ = message;
  is_lost_ = true;
  GiveAnswers();
  EndAll();
  Count();
  return outputs_;
}

// Requests with a row on its way stay in memory, because the runner may still look at them.
void Engine::Impl::EndAll() {
  first_aborted_ = nullptr;
  LiveRequest* request = schedule_.AnyLive();
  for (; request != nullptr; request = schedule_.AnyLive()) {
    Give(*request, {.address = request->address,
                    .first_token = request->output_size(),
                    .end = GenerationEnd::kEngineLost,
                    .message = lost_message_});
  }
}

Engine::Engine(StepRunner& runner, std::optional<Tokenizer> tokenizer, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(runner, std::move(tokenizer), options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Engine::Impl& Engine::Get() const {
  if (impl_ == nullptr) ThrowInvalid("engine", "moved from", "one that has not been moved from");
  return *impl_;
}

const EngineOptions& Engine::options() const { return Get().options(); }
const RunnerInfo& Engine::runner_info() const { return Get().runner_info(); }
ClientId Engine::AddClient() { return Get().AddClient(); }
void Engine::RemoveClient(ClientId client) { Get().RemoveClient(client); }
void Engine::Submit(ClientId client, EngineRequest request) {
  Get().Submit(client, std::move(request));
}
void Engine::Abort(ClientId client, RequestAddress address) { Get().Abort(client, address); }
bool Engine::HasWork() const { return Get().HasWork(); }
std::span<const EngineOutput> Engine::Step() { return Get().Step(); }
std::span<const EngineOutput> Engine::Fail(std::string_view message) { return Get().Fail(message); }
const EngineCounters& Engine::counters() const { return Get().counters(); }

}  // namespace sluice
