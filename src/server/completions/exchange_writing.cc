// The output of a LiveExchange: a whole response, or the events of a stream.
#include <algorithm>
#include <string>
#include <utility>

#include "server/api/request/field_names.h"
#include "server/api/response/response_body.h"
#include "server/completions/failure.h"
#include "server/completions/live_exchange.h"
#include "server/error_response.h"

namespace sluice::server {
namespace {

ApiError SlowReader(size_t most) {
  return {.status = 408,
          .message = "this stream was read too slowly: more than " + std::to_string(most) +
                     " bytes waited for its reader",
          .code = "slow_reader"};
}

}  // namespace

void LiveExchange::Write() {
  has_news_ = false;
  if (is_over() || phase_ == Phase::kPreparing) return;
  if (failure_.has_value()) AbortAll();
  if (!asked_.streams) return WriteWhole();
  if (phase_ == Phase::kRunning) {
    if (failure_.has_value()) return Respond(ErrorResponse(*failure_));
    if (!MayBegin()) return;
    BeginStream();
  } else if (exchange_.unsent() > loop_->settings.coalesce_bytes) {
    ++loop_->counters.coalesced;
    if (choices_live_ > 0 && !failure_.has_value() && IsTooSlow()) {
      ++loop_->counters.slow_readers;
      EndWith(SlowReader(loop_->settings.unsent_bytes));
    }
    return;
  }
  WriteStream();
}

// Whether more waits for the reader than may. It goes out before the error.
bool LiveExchange::IsTooSlow() const {
  size_t bytes = 0;
  for (const Choice& choice : choices_) bytes += choice.pending.bytes();
  return bytes > loop_->settings.unsent_bytes;
}

void LiveExchange::OnRoom() {
  const auto has_news = [](const Choice& choice) { return choice.has_news; };
  if (phase_ == Phase::kStreaming && std::any_of(choices_.begin(), choices_.end(), has_news)) {
    Write();
  }
}

void LiveExchange::Tick() {
  if (is_over() || !asked_.streams) return;
  if (phase_ == Phase::kRunning && MayBegin()) Write();
  if (loop_->now - last_write_ < loop_->settings.keep_alive || exchange_.unsent() > 0) return;
  if (phase_ == Phase::kRunning) BeginStream();
  writer_->KeepAlive(exchange_.stream());
  Flush();
}

// --- whole -------------------------------------------------------------------------------------

void LiveExchange::WriteWhole() {
  if (failure_.has_value()) return Respond(ErrorResponse(*failure_));
  if (choices_live_ > 0) return;
  std::vector<WholeChoice> whole;
  for (Choice& choice : choices_) {
    const PreparedPrompt& prompt = PromptOf(choice);
    if (has_offsets_) choice.text_offset = CountCodePoints(prompt.echo);
    choice.given = choice.tokens;
    const ChoiceDelta front = FrontOf(choice);
    whole.push_back({.echo = front,
                     .content = DeltaOf(choice),
                     .end = EndOf(choice),
                     .prompt_ids = front.prompt_ids});
    if (asked_.echo || choice.prompt.IsEmpty()) continue;
    whole.back().prompt_logprobs = choice.prompt.Of(std::span(prompt.ids).subspan(1));
  }
  choices_unwritten_ = 0;
  HttpResponse response{.body = CompletionBody(head_, whole, usage(), loop_->client.tokenizer())};
  AddIgnoredFields(asked_.unknown, response);
  Respond(std::move(response));
}

// --- a stream ----------------------------------------------------------------------------------

bool LiveExchange::MayBegin() const {
  if (choices_unheard_ == 0) return true;
  return first_output_.has_value() && loop_->now - *first_output_ >= kHeadPatience;
}

void LiveExchange::BeginStream() {
  writer_ = MakeEventWriter(head_, asked_.includes_usage, loop_->client.tokenizer());
  HttpResponse head{.content_type = "text/event-stream; charset=utf-8",
                    .fields = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  AddIgnoredFields(asked_.unknown, head);
  exchange_.Begin(std::move(head));
  phase_ = Phase::kStreaming;
  loop_->counters.events += writer_->Begin(exchange_.stream(), usage());
}

void LiveExchange::WriteStream() {
  for (Choice& choice : choices_) {
    if (choice.has_news) WriteChoice(choice);
  }
  if (!failure_.has_value() && choices_unwritten_ > 0) return Flush();

  std::string& out = exchange_.stream();
  loop_->counters.events +=
      failure_.has_value() ? writer_->Fail(out, *failure_) : writer_->End(out, usage());
  exchange_.End();
  LeaveLoop();
}

void LiveExchange::WriteChoice(Choice& choice) {
  choice.has_news = false;
  const bool is_finished = HasFinishReason(choice.end);
  const bool has_content = !choice.pending.IsEmpty();
  if (!has_content && !is_finished && choice.prompt.IsEmpty()) return;
  choice.given = choice.tokens;
  if (!std::exchange(choice.has_begun, true)) WriteFront(choice);
  if (has_content) WriteContent(choice);
  if (!is_finished) return;
  loop_->counters.events += writer_->Finish(exchange_.stream(), EndOf(choice), usage_so_far());
  --choices_unwritten_;
}

void LiveExchange::WriteFront(Choice& choice) {
  std::string& out = exchange_.stream();
  loop_->counters.events += writer_->Front(out, choice.index);
  const ChoiceDelta front = FrontOf(choice);
  const bool is_empty =
      front.text.empty() && front.prompt_ids.empty() && front.logprobs.ids.empty();
  if (is_empty) return;
  loop_->counters.events += writer_->Content(out, front, usage_so_far());
  if (has_offsets_) choice.text_offset = CountCodePoints(front.text);
  choice.prompt = {};
}

void LiveExchange::WriteContent(Choice& choice) {
  loop_->counters.events += writer_->Content(exchange_.stream(), DeltaOf(choice), usage_so_far());
  if (has_offsets_) choice.text_offset += CountCodePoints(choice.pending.text);
  choice.pending.Clear();
}

void LiveExchange::Flush() {
  exchange_.Flush();
  last_write_ = loop_->now;
}

// --- parts -------------------------------------------------------------------------------------

// The prompt's part of the response, before the output.
ChoiceDelta LiveExchange::FrontOf(const Choice& choice) const {
  const PreparedPrompt& prompt = PromptOf(choice);
  ChoiceDelta front = {.index = choice.index, .text = prompt.echo};
  if (asked_.echo && asked_.logprobs.has_value()) {
    // A first token has no log-probability, but it is a token.
    front.logprobs =
        choice.prompt.IsEmpty() ? TokenLogprobs{.ids = prompt.ids} : choice.prompt.Of(prompt.ids);
  }
  if (asked_.returns_token_ids) front.prompt_ids = prompt.ids;
  return front;
}

ChoiceDelta LiveExchange::DeltaOf(const Choice& choice) const {
  ChoiceDelta delta = {.index = choice.index,
                       .text = choice.pending.text,
                       .parts = choice.parser.has_value() ? &choice.pending.parts : nullptr,
                       .logprobs = choice.pending.reported.Of(choice.pending.ids),
                       .text_offset = choice.text_offset};
  if (asked_.returns_token_ids) delta.token_ids = choice.pending.ids;
  return delta;
}

ChoiceEnd LiveExchange::EndOf(const Choice& choice) const {
  return {.index = choice.index,
          .end = choice.end,
          .stop = choice.stop,
          .stop_token = choice.stop_token,
          .has_calls = choice.parser.has_value() && choice.parser->has_calls()};
}

Usage LiveExchange::usage() const {
  Usage usage = {prompt_tokens_, completion_tokens_, prompts_uncounted_ == 0 ? cached_tokens_ : -1};
  for (const Choice& choice : choices_) {
    if (choice.reasoning.has_value()) usage.reasoning_tokens += choice.reasoning->tokens();
  }
  return usage;
}

std::optional<Usage> LiveExchange::usage_so_far() const {
  return asked_.continuous_usage ? std::optional(usage()) : std::nullopt;
}

}  // namespace sluice::server
