// The step loop: the plan, the runner, and the results for each request.
#include <algorithm>
#include <exception>
#include <new>
#include <utility>

#include "engine/engine_impl.h"
#include "support/check.h"

namespace sluice {
namespace {

void CheckPrompt(const engine::LiveRequest& request, const StepRow& row,
                 const PromptLogprobs& given) {
  CheckSize("prompt.logprobs of a row of the runner", given.logprobs.size(), row.scored);
  CheckSize("prompt.ranks of a row of the runner", given.ranks.size(), row.scored);
  if (row.scored == 0) return;
  CheckInRange("prompt.first_token of a row of the runner", given.first_token, row.first_scored,
               row.first_scored);
  CheckInRange("prompt.width of a row of the runner", given.width, request.prompt_logprob_width,
               request.prompt_logprob_width);
  CheckSize("prompt.ids of a row of the runner", given.ids.size(), row.scored * given.width);
  CheckSize("prompt.values of a row of the runner", given.values.size(), row.scored * given.width);
}

// The tokens before the first without an id, which has a status. Later ones are ignored.
size_t CountDrawn(const StepRowResult& result) {
  const auto end = std::find_if(result.tokens.begin(), result.tokens.end(),
                                [](const TokenResult& token) { return token.id < 0; });
  return static_cast<size_t>(end - result.tokens.begin());
}

}  // namespace

bool Engine::Impl::HasWork() const {
  if (!answers_.empty() || has_kept_outputs_) return true;
  if (is_lost_) return schedule_.running() + schedule_.waiting() > 0;
  return in_flight_ > 0 || schedule_.HasWork();
}

std::span<const EngineOutput> Engine::Impl::Step() {
  if (is_lost_) return Fail(std::string(lost_message_));
  engine::Clock clock;
  BeginOutputs();
  try {
    StepOnce(clock);
  } catch (...) {
    is_lost_ = true;
    has_kept_outputs_ = !outputs_.empty();
    Count();
    try {
      throw;
    } catch (const std::exception& error) {
      lost_message_ = error.what();
      throw;
    }
  }
  Count();
  counters_.own_ns += clock.Lap();
  return outputs_;
}

void Engine::Impl::BeginOutputs() {
  FreeDead();
  spare_answers_.splice(spare_answers_.end(), given_answers_);
  outputs_.clear();
  logprobs_.clear();
  ranks_.clear();
}

void Engine::Impl::StepOnce(engine::Clock& clock) {
  GiveAnswers();
  GiveAborts();
  TakeCompiled();
  const int32_t in_flight_before = in_flight_;
  Launch(clock);
  const bool is_due = in_flight_ > options_.steps_in_flight || in_flight_ == in_flight_before;
  if (in_flight_ > 0 && is_due) Read(clock);
  AwaitCompiled(clock);
}

void Engine::Impl::GiveAnswers() {
  while (!answers_.empty()) {
    given_answers_.splice(given_answers_.end(), answers_, answers_.begin());
    const Answer& answer = given_answers_.back();
    ++counters_.ended;
    if (answer.end == GenerationEnd::kRejected) ++counters_.rejected;
    engine::Place* const place = clients_.Find(answer.client, answer.address);
    if (place == nullptr) continue;  // the client is gone
    place->is_answered = false;
    outputs_.push_back({.client = answer.client,
                        .row = {.address = answer.address,
                                .end = answer.end,
                                .message = answer.message,
                                .code = answer.code,
                                .parameter = answer.parameter}});
  }
}

void Engine::Impl::GiveAborts() {
  while (first_aborted_ != nullptr) {
    LiveRequest& request = *first_aborted_;
    first_aborted_ = request.next_aborted;
    ++counters_.aborted;
    GenerationEnd end = GenerationEnd::kCancelled;
    try {
      end = EndWithText(request, end);
    } catch (const std::bad_alloc&) {  // cancelled all the same, whatever the text held back
    }
    Give(request, {.address = request.address, .first_token = request.output_size(), .end = end});
  }
}

// A runner that has thrown is not called again. After any other exception of a step the runner
// still works, and the destructor awaits the steps that it computes.
template <typename Call>
void Engine::Impl::CallRunner(Call call) {
  try {
    call();
  } catch (...) {
    runner_threw_ = true;
    throw;
  }
}

void Engine::Impl::Launch(engine::Clock& clock) {
  PlannedStep& step = steps_[(oldest_ + static_cast<size_t>(in_flight_)) % steps_.size()];
  schedule_.Plan(step);
  if (step.IsEmpty()) return;
  for (const StepRow& row : step.rows) counters_.prompt_tokens += std::ssize(row.tokens);
  ++counters_.steps;
  ++in_flight_;  // before the call: a runner that throws has read the plan too
  counters_.own_ns += clock.Lap();
  CallRunner([&] { runner_.Launch(step.view()); });
  counters_.model_ns += clock.Lap();
}

void Engine::Impl::Read(engine::Clock& clock) {
  counters_.own_ns += clock.Lap();
  const StepResults* awaited = nullptr;
  CallRunner([&] { awaited = &runner_.Await(); });
  const StepResults& results = *awaited;
  counters_.model_ns += clock.Lap();
  PlannedStep& step = steps_[oldest_];
  oldest_ = (oldest_ + 1) % steps_.size();
  --in_flight_;  // from here on nothing is left to be awaited of it, whatever is thrown
  CheckResults(step, results);
  ReserveLogprobs(step, results);
  counters_.draft_tokens += results.drafts.tried;
  counters_.accepted_draft_tokens += results.drafts.accepted;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    TakeRow(*step.requests[i], step.rows[i], results.rows[i]);
  }
  step.requests.clear();
}

// Checks the promises of a runner, as far as memory depends on them.
void Engine::Impl::CheckResults(const PlannedStep& step, const StepResults& results) const {
  CheckSize("runner results", results.rows.size(), std::ssize(step.rows));
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const StepRowResult& result = results.rows[i];
    const bool draws = step.rows[i].samples;
    const bool must_draw = draws && result.failure.empty();
    CheckInRange("tokens of a row of the runner", std::ssize(result.tokens), must_draw ? 1 : 0,
                 draws ? info_.max_given_tokens : 0);
    if (result.failure.empty()) CheckPrompt(*step.requests[i], step.rows[i], result.prompt);
    if (result.logprob_width == 0) continue;
    const size_t entries = result.tokens.size() * static_cast<size_t>(result.logprob_width);
    CheckSize("logprob_ids of a row of the runner", result.logprob_ids.size(),
              static_cast<int64_t>(entries));
    CheckSize("logprob_values of a row of the runner", result.logprob_values.size(),
              static_cast<int64_t>(entries));
  }
}

// So that the outputs can point into these vectors while they are filled.
void Engine::Impl::ReserveLogprobs(const PlannedStep& step, const StepResults& results) {
  size_t tokens = 0;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    if (step.requests[i]->params.logprobs.has_value()) tokens += results.rows[i].tokens.size();
  }
  if (tokens > logprobs_.capacity()) logprobs_.reserve(2 * tokens);
  if (tokens > ranks_.capacity()) ranks_.reserve(2 * tokens);
}

void Engine::Impl::TakeRow(LiveRequest& request, const StepRow& planned,
                           const StepRowResult& result) {
  --request.rows_in_flight;
  if (planned.samples) --request.draws_in_flight;
  const size_t drawn = CountDrawn(result);
  counters_.tokens += static_cast<int64_t>(drawn);
  int64_t& discarded =
      request.is_aborted ? counters_.tokens_discarded_abort : counters_.tokens_discarded_stop;
  if (request.phase == engine::RequestPhase::kEnded) {
    discarded += static_cast<int64_t>(drawn);
    if (request.rows_in_flight == 0) Bury(request);
    return;
  }
  if (request.phase == engine::RequestPhase::kRunning && result.failure.empty()) {
    request.computed = planned.tokens.empty() ? std::ssize(request.tokens)
                                              : std::max(request.computed, request.shared) +
                                                    std::ssize(planned.tokens);
  }
  const int64_t before = request.output_size();
  OutputRow row{.address = request.address, .first_token = before};
  if (planned.scored > 0 && result.failure.empty()) {
    row.prompt = result.prompt;
    request.next_given += planned.scored;
  }
  try {
    TakeTokens(request, drawn, result, row);
  } catch (const std::bad_alloc&) {
    request.tokens.resize(static_cast<size_t>(request.prompt_size + before));
    row.end = GenerationEnd::kStatus;
    row.message = engine::kNoMemory;
    row.code = ErrorCode::kExhausted;
  }
  row.ids = std::span<const int32_t>(request.tokens)
                .subspan(static_cast<size_t>(request.prompt_size + before));
  counters_.tokens_given += std::ssize(row.ids);
  discarded += static_cast<int64_t>(drawn) - std::ssize(row.ids);
  const bool is_chunk = row.ids.empty() && row.end == GenerationEnd::kNone;
  if (is_chunk && row.prompt.IsEmpty()) return;
  AddLogprobs(request, result, row);
  Give(request, row);
}

// The same ends as a Generator's.
void Engine::Impl::TakeTokens(LiveRequest& request, size_t drawn, const StepRowResult& result,
                              OutputRow& row) {
  const auto count = std::min(static_cast<int64_t>(drawn), request.room - row.first_token);
  for (const TokenResult& token : result.tokens.first(static_cast<size_t>(count))) {
    request.tokens.push_back(token.id);
  }
  const auto ids = std::span<const int32_t>(request.tokens).last(static_cast<size_t>(count));
  const engine::EngineStop::Found found = request.stop.Take(ids, text_);
  request.tokens.resize(request.tokens.size() - ids.size() + found.tokens);
  row.end = found.end;
  if (row.end != GenerationEnd::kNone) return;
  if (request.output_size() == request.room && request.IsPromptGiven()) {
    const bool is_length = request.room == request.max_tokens;
    row.end = EndWithText(request, is_length ? GenerationEnd::kLength : GenerationEnd::kContext);
  } else if (drawn < result.tokens.size()) {
    row.end = GenerationEnd::kStatus;
    row.status = result.tokens[drawn].status;
    row.message = Name(row.status);
  } else if (!result.failure.empty()) {
    // A request without a token has no visible output: it may be submitted again.
    const bool has_output = request.output_size() > 0;
    row.end = has_output ? GenerationEnd::kStatus : GenerationEnd::kRejected;
    row.message = result.failure;
    row.code = result.failure_code;
  }
}

// A stop string may end in the text that an end lets out.
GenerationEnd Engine::Impl::EndWithText(LiveRequest& request, GenerationEnd end) {
  return request.stop.FinishStops(text_) ? GenerationEnd::kStopString : end;
}

void Engine::Impl::AddLogprobs(const LiveRequest& request, const StepRowResult& result,
                               OutputRow& row) {
  if (!request.params.logprobs.has_value()) return;
  const size_t begin = logprobs_.size();
  for (const TokenResult& token : result.tokens.first(row.ids.size())) {
    logprobs_.push_back(token.logprob);
    ranks_.push_back(token.rank);
  }
  row.logprobs = std::span<const float>(logprobs_).subspan(begin);
  row.ranks = std::span<const int32_t>(ranks_).subspan(begin);
  row.logprob_width = result.logprob_width;
  const size_t entries = row.ids.size() * static_cast<size_t>(result.logprob_width);
  row.logprob_ids = result.logprob_ids.first(entries);
  row.logprob_values = result.logprob_values.first(entries);
}

void Engine::Impl::Give(LiveRequest& request, const OutputRow& row) {
  if (!request.is_silent) outputs_.push_back({.client = request.client, .row = row});
  if (row.end == GenerationEnd::kNone) return;
  if (!request.is_silent) outputs_.back().row.cached_tokens = request.cached;
  schedule_.Remove(request);
  ++counters_.ended;
  if (row.end == GenerationEnd::kRejected) ++counters_.rejected;
  if (!request.is_silent) clients_.Find(request.client, request.address)->request = nullptr;
  if (request.rows_in_flight == 0) Bury(request);
}

void Engine::Impl::Bury(LiveRequest& request) {
  request.next = first_dead_;
  first_dead_ = &request;
}

void Engine::Impl::FreeDead() {
  schedule_.DropEnded();
  while (first_dead_ != nullptr) {
    const std::unique_ptr<LiveRequest> request(first_dead_);
    first_dead_ = request->next;
  }
}

}  // namespace sluice
