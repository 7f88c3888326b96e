#include "server/completions/live_exchange.h"

#include <algorithm>
#include <new>
#include <utility>

#include "server/api/request/field_names.h"
#include "server/api/response/message_events.h"
#include "server/completions/failure.h"
#include "server/error_response.h"
#include "support/random_seed.h"

namespace sluice::server {
namespace {

int64_t SecondsSince1970() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// What the id of a response begins with.
std::string_view IdPrefix(Api api) {
  switch (api) {
    case Api::kCompletions:
      return "cmpl-";
    case Api::kChat:
      return "chatcmpl-";
    case Api::kResponses:
      return "resp_";
    default:
      return "msg_";
  }
}

// One that a client can give back: in JavaScript numbers have 53 bits.
uint64_t RandomShortSeed() { return RandomSeed() >> 11; }

template <typename T, typename U>
bool Contains(const std::vector<T>& values, const U& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

LiveExchange::LiveExchange(std::shared_ptr<LoopState> loop, Exchange& exchange, Api api)
    : loop_(std::move(loop)),
      exchange_(exchange),
      arrived_(loop_->now),
      place_(loop_->exchanges.size()) {
  asked_.api = api;
  loop_->exchanges.push_back(this);
  ++loop_->counters.running;
}

LiveExchange::~LiveExchange() { Drop(); }

void LiveExchange::Drop() {
  if (is_over()) return;
  is_left_ = true;
  AbortAll();
  LeaveLoop();
}

std::weak_ptr<LiveExchange*> LiveExchange::MakeHandle() {
  handle_ = std::make_shared<LiveExchange*>(this);
  return handle_;
}

// --- to the engine -----------------------------------------------------------------------------

void LiveExchange::Start(Preparation preparation) {
  if (phase_ != Phase::kPreparing) return;
  if (const auto* const error = std::get_if<ApiError>(&preparation)) {
    return Respond(ErrorResponse(*error));
  }
  PreparedRequest& request = std::get<PreparedRequest>(preparation);
  if (request.asked.api == Api::kCountTokens) return RespondWithCount(request);
  if (request.asked.grammar.has_value() && !loop_->client.info().has_grammars) {
    return Respond(ErrorResponse(NoGrammars(request.asked)));
  }
  ApiError error;
  try {
    Submit(request);
    phase_ = Phase::kRunning;
    last_write_ = loop_->now;
    return;
  } catch (const ApiFailure& failure) {
    error = failure.error();
  } catch (const Error& refusal) {
    error = SubmitFailure(refusal);
    NameGrammarField(asked_, error);
  } catch (const std::bad_alloc&) {
    error = Unavailable("there is no memory for this request");
  }
  AbortAll();
  Respond(ErrorResponse(error));
}

void LiveExchange::RespondWithCount(const PreparedRequest& request) {
  loop_->counters.unknown_fields += std::ssize(request.asked.unknown);
  HttpResponse response{.body = CountBody(std::ssize(request.prompts.front().ids))};
  AddIgnoredFields(request.asked.unknown, response);
  Respond(std::move(response));
}

void LiveExchange::Submit(PreparedRequest& request) {
  asked_ = std::move(request.asked);
  prompts_ = std::move(request.prompts);
  if (!asked_.params.seed.has_value()) asked_.params.seed = RandomShortSeed();
  head_ = {.api = asked_.api,
           .id = std::string(IdPrefix(asked_.api)) + exchange_.request().id,
           .created = SecondsSince1970(),
           .model = std::move(request.model),
           .seed = asked_.params.seed,
           .skips_special_tokens = asked_.text.detokenizer.skip_special_tokens,
           .echo_members = std::move(asked_.echo_members)};
  wanted_ = {.ids = asked_.returns_token_ids, .logprobs = asked_.logprobs.has_value()};
  has_offsets_ = wanted_.logprobs && !IsChat(asked_.api);
  loop_->counters.unknown_fields += std::ssize(asked_.unknown);

  const size_t count = prompts_.size() * static_cast<size_t>(asked_.n);
  exchange_.TakePlaces(static_cast<int64_t>(count) - 1, asked_.n > 1 ? "n" : "prompt");
  choices_.resize(count);
  choices_unheard_ = choices_unwritten_ = choices_.size();
  loop_->choices.Reserve(choices_.size());
  const auto tools = std::make_shared<const std::vector<Tool>>(asked_.tools.tools);
  for (Choice& choice : choices_) {
    choice.exchange = this;
    if (asked_.output.tools != ToolFormat::kNone ||
        asked_.output.reasoning != ReasoningFormat::kNone) {
      choice.parser.emplace(asked_.output, tools,
                            ChoiceParser::Wanted{.reasoning = asked_.tools.includes_reasoning,
                                                 .parallel = asked_.tools.is_parallel});
    }
    if (asked_.api == Api::kResponses && asked_.output.reasoning != ReasoningFormat::kNone) {
      choice.reasoning.emplace(asked_.output, loop_->client.tokenizer(), asked_.text.detokenizer);
    }
    choice.index = static_cast<int32_t>(&choice - choices_.data());
    choice.request = loop_->client.Submit(RequestFor(choice));
    choice.is_live = true;
    ++choices_live_;
    ++loop_->counters.choices_running;
    loop_->choices.Insert(choice.request, choice);
  }
  prompts_uncounted_ = prompts_.size();
  for (PreparedPrompt& prompt : prompts_) {
    prompt_tokens_ += std::ssize(prompt.ids);
    if (!asked_.returns_token_ids && !asked_.prompt_logprobs.has_value()) prompt.ids = {};
  }
}

const PreparedPrompt& LiveExchange::PromptOf(const Choice& choice) const {
  return prompts_[static_cast<size_t>(choice.index / asked_.n)];
}

ClientRequest LiveExchange::RequestFor(const Choice& choice) const {
  const PreparedPrompt& prompt = PromptOf(choice);
  return {.params = asked_.params,
          .prompt = prompt.ids,
          .choice = static_cast<uint32_t>(choice.index),
          .max_tokens = prompt.max_tokens,
          .prompt_logprobs = asked_.prompt_logprobs,
          .text = asked_.text,
          .grammar = asked_.grammar,
          .thinking = asked_.thinking,
          .group = exchange_.group(),
          .priority = asked_.priority,
          .extras = {.cache_salt = asked_.cache_salt, .adapter = asked_.adapter},
          .ignores_end = asked_.ignores_end,
          .mode = asked_.streams ? OutputMode::kDelta : OutputMode::kFinal,
          .stream_interval = asked_.stream_interval};
}

// --- from the engine ---------------------------------------------------------------------------

void LiveExchange::Take(Choice& choice, const ClientOutput& output) {
  Measure(choice, output);
  choice.tokens = output.output_tokens;
  const PromptLogprobs& prompt = output.prompt;
  if (!prompt.IsEmpty()) {
    choice.prompt.Append(prompt.logprobs, prompt.ranks, prompt.width, prompt.ids, prompt.values);
  }
  choice.pending.Append(output, wanted_);
  if (choice.parser.has_value()) {
    choice.parser->TakeApart(choice.pending, output.end != GenerationEnd::kNone);
  }
  if (choice.reasoning.has_value()) {
    choice.reasoning->Step(output.ids);
    if (output.end != GenerationEnd::kNone) choice.reasoning->Finish();
  }
  if (!choice.is_heard) --choices_unheard_;
  choice.is_heard = true;
  choice.has_news = true;
  if (!has_news_) loop_->with_news.push_back(this);
  has_news_ = true;
  if (output.end != GenerationEnd::kNone) NoteEnd(choice, output);
}

void LiveExchange::Measure(Choice& choice, const ClientOutput& output) {
  CompletionCounters& counters = loop_->counters;
  const Clock::time_point now = loop_->now;
  const int64_t tokens = output.output_tokens - choice.tokens;
  completion_tokens_ += tokens;
  counters.generation_tokens += tokens;
  if (!first_output_.has_value() && (tokens > 0 || HasFinishReason(output.end))) {
    first_output_ = now;
    counters.prompt_tokens += prompt_tokens_;
    if (asked_.streams) counters.first_token.Add(Seconds(now - arrived_));
  }
  if (tokens == 0) return;
  if (choice.tokens > 0) counters.between_tokens.Add(Seconds(now - choice.last_output));
  choice.last_output = now;
}

void LiveExchange::NoteEnd(Choice& choice, const ClientOutput& output) {
  Leave(choice, output.end);
  if (!HasFinishReason(output.end)) {
    // The others are aborted when all outputs of this Poll are taken: they may have some, too.
    if (!failure_.has_value()) {
      failure_ = FailureOf(output);
      NameGrammarField(asked_, *failure_);
    }
    return;
  }
  if (output.cached_tokens >= 0 && choice.index % asked_.n == 0) {
    cached_tokens_ += output.cached_tokens;
    --prompts_uncounted_;
  }
  choice.stop.assign(output.stop);
  if (output.end != GenerationEnd::kStopToken) return;
  // Only where the request named it, as an id or as the text of a special token.
  if (Contains(asked_.params.stop_token_ids, output.stop_token)) {
    choice.stop_token = output.stop_token;
  } else if (const auto text = loop_->client.tokenizer().Token(output.stop_token);
             text.has_value() && Contains(asked_.text.stops, *text)) {
    choice.stop = *text;
  }
}

// --- the end -----------------------------------------------------------------------------------

void LiveExchange::AbortAll() {
  for (Choice& choice : choices_) {
    if (!choice.is_live) continue;
    loop_->client.Abort(choice.request);
    Leave(choice, GenerationEnd::kCancelled);
  }
}

void LiveExchange::Leave(Choice& choice, GenerationEnd end) {
  choice.end = end;
  choice.is_live = false;
  --choices_live_;
  loop_->choices.Erase(choice.request);
  --loop_->counters.choices_running;
  ++loop_->counters.choices_ended[static_cast<size_t>(end)];
}

void LiveExchange::EndWith(const ApiError& error) {
  if (is_over()) return;
  if (phase_ == Phase::kPreparing) return Respond(ErrorResponse(error));
  if (choices_live_ > 0 && !failure_.has_value()) failure_ = error;
  AbortAll();
  phase_ == Phase::kStreaming ? WriteStream() : Write();
}

void LiveExchange::Respond(HttpResponse response) {
  exchange_.Respond(std::move(response));
  LeaveLoop();
}

void LiveExchange::LeaveLoop() {
  phase_ = Phase::kOver;
  CompletionCounters& counters = loop_->counters;
  --counters.running;
  for (const Choice& choice : choices_) {
    (is_left_ ? counters.tokens_left : counters.tokens_failed) += choice.tokens - choice.given;
  }
  if (has_news_) std::erase(loop_->with_news, this);
  std::vector<LiveExchange*>& all = loop_->exchanges;
  all[place_] = all.back();
  all[place_]->place_ = place_;
  all.pop_back();
  const bool is_answered = !choices_.empty() && choices_unwritten_ == 0;
  if (is_answered) counters.end_to_end.Add(Seconds(loop_->now - arrived_));
}

}  // namespace sluice::server
