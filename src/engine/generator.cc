// The course of a generation: the prompt in chunks, one sequence for each choice after it, then
// step by step forward pass, head, sampler, text.
#include "sluice/generator.hpp"

#include <algorithm>
#include <utility>

#include "engine/clock.h"
#include "engine/grammar/choice_mask.h"
#include "engine/request_checks.h"
#include "engine/runner/head_stage.h"
#include "engine/thinking/thinking_mask.h"
#include "sluice/decoder.hpp"
#include "sluice/sampler.hpp"
#include "support/check.h"

namespace sluice {
namespace {

constexpr int64_t kMostChoices = 1024;
constexpr size_t kUsualStepText = 256;  // bytes that a step lets out; more take memory

// The parameters with the checkpoint's end tokens among the stop tokens, so that min_tokens masks
// them too.
SamplingParams WithEndTokens(const GenerationRequest& request, const Checkpoint& checkpoint) {
  SamplingParams params = request.params;
  if (request.grammar.has_value()) params.min_tokens = 0;
  if (request.ignores_end && !request.grammar.has_value()) return params;
  for (const int32_t id : checkpoint.end_tokens()) {
    TokenIds& ids = params.stop_token_ids;
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
  return params;
}

TextStreamOptions StreamOptions(const GenerationRequest& request, const SamplingParams& params,
                                const Tokenizer& tokenizer) {
  TextStreamOptions options;
  options.stops = std::make_shared<const StopList>(request.stops);
  options.stop = {.include_stop = request.include_stop, .min_tokens = params.min_tokens};
  options.stop_token_ids = params.stop_token_ids;
  const std::vector<int32_t> spelled = tokenizer.StopTokenIds(request.stops);
  options.stop_token_ids.insert(options.stop_token_ids.end(), spelled.begin(), spelled.end());
  options.thinking = request.thinking;
  return options;
}

// Before anything is allocated.
const GenerationRequest& Checked(const GenerationRequest& request, const Checkpoint& checkpoint,
                                 const GeneratorOptions& options) {
  Validate(request.params, checkpoint.vocab(), options.limits);
  CheckInRange("choices", request.choices, 1, kMostChoices);
  CheckInRange("max_tokens", request.max_tokens, 0, INT32_MAX);
  if (request.prompt_logprobs.has_value()) {
    CheckInRange("prompt_logprobs", *request.prompt_logprobs, 0, checkpoint.vocab());
  }
  CheckInRange("prompt_chunk", options.prompt_chunk, 1, 1 << 20);
  const int64_t context = checkpoint.model().info().context;
  const int64_t length = std::ssize(request.prompt);
  if (length < 1 || length >= context) {
    ThrowInvalid("prompt", ToText(length) + " tokens",
                 "1 to " + ToText(context - 1) + ", so that one more fits into the context");
  }
  for (const int32_t id : request.prompt) CheckInRange("prompt", id, 0, checkpoint.vocab() - 1);
  if (request.grammar.has_value()) {
    CheckInRange("grammar.vocab()", request.grammar->vocab(), checkpoint.vocab(),
                 checkpoint.vocab());
  }
  if (request.thinking.has_value()) engine::CheckThinking(*request.thinking);
  return request;
}

// Tokens that each choice can have.
int64_t RoomFor(const GenerationRequest& request, int64_t context) {
  return std::min(request.max_tokens, context - std::ssize(request.prompt));
}

DecoderOptions OptionsOfDecoder(const GenerationRequest& request, int64_t context,
                                const GeneratorOptions& options) {
  const auto to_pages = [](int64_t tokens) {
    return (tokens + Decoder::kPageTokens - 1) / Decoder::kPageTokens * Decoder::kPageTokens;
  };
  // The prompt's pages are shared, but for the last one, which every choice goes on writing.
  const int64_t own = to_pages(RoomFor(request, context)) + Decoder::kPageTokens;
  return {.max_sequences = request.choices,
          .cache_tokens = to_pages(std::ssize(request.prompt)) + request.choices * own,
          .max_batch_tokens = std::max<int64_t>(
              std::min<int64_t>(options.prompt_chunk, std::ssize(request.prompt)), request.choices),
          .backend = options.backend,
          .parallel = options.parallel};
}

// What follows the last token is sampled, if anything is.
int64_t TokensToRead(const GenerationRequest& request) {
  const int64_t length = std::ssize(request.prompt);
  if (request.max_tokens > 0) return length;
  return request.prompt_logprobs.has_value() ? length - 1 : 0;
}

int32_t LogprobWidth(const Checkpoint& checkpoint, const GenerationRequest& request) {
  const std::optional<int32_t>& listed = request.params.logprobs;
  if (!listed.has_value()) return 0;
  return 1 + (*listed < 0 ? static_cast<int32_t>(checkpoint.vocab()) : *listed);
}

engine::HeadStageOptions OptionsOfHead(const Checkpoint& checkpoint,
                                       const GenerationRequest& request,
                                       const GeneratorOptions& options) {
  return {.head = checkpoint.head(),
          .planes = options.planes,
          .top_k_head = options.top_k_head,
          .logit_softcap = checkpoint.model().info().logit_softcap,
          .max_rows = request.choices,
          .logprob_width = LogprobWidth(checkpoint, request),
          .scores = request.prompt_logprobs.has_value(),
          .reports = options.reports,
          .limits = options.limits,
          .backend = options.backend,
          .parallel = options.parallel};
}

}  // namespace

class Generator::Impl {
 public:
  Impl(const Checkpoint& checkpoint, const GenerationRequest& request,
       const GeneratorOptions& options);

  const SamplingParams& params() const { return params_; }
  int64_t Prefill();
  std::span<const ChoiceStep> Step();
  std::span<const ChoiceStep> Cancel() { return EndAll(GenerationEnd::kCancelled); }
  PromptLogprobs prompt_logprobs() const;
  int64_t live_choices() const { return std::ssize(live_); }
  std::span<const int32_t> OutputTokens(int32_t choice) const;
  const GenerationStats& stats() const { return stats_; }

  MatrixView hidden() const;
  LogitsView logits() const;
  std::span<const int32_t> kept() const { return Reported(head_.results().kept); }
  std::span<const CutMass> masses() const { return Reported(head_.results().masses); }
  LogprobRows logprobs() const;

 private:
  struct Choice {
    SequenceHandle sequence;
    RequestHandle request;
    TextStream stream;
    std::string text;  // of the step
    std::vector<int32_t> output;
    std::unique_ptr<engine::ChoiceMask> grammar;
    std::unique_ptr<engine::ThinkingMask> thinking;

    DrawMask* mask() const {
      return thinking != nullptr ? static_cast<DrawMask*>(thinking.get()) : grammar.get();
    }
  };

  std::span<const ChoiceStep> EndAll(GenerationEnd end);
  void ScoreChunk(int64_t begin, int64_t count);
  void StartChoices();
  bool IsForwarded() const;
  void Forward();
  ChoiceStep TakeToken(int32_t index, const TokenResult& token);
  void DropEnded();
  template <typename T>
  std::span<const T> Reported(const std::vector<T>& rows) const;

  Checkpoint checkpoint_;
  SamplingParams params_;
  TextStreamOptions stream_;  // before what takes memory: it refuses stops
  std::vector<int32_t> prompt_;
  int64_t max_tokens_;
  int64_t room_;  // tokens that the context leaves each choice
  int64_t prompt_chunk_;
  Decoder decoder_;
  Sampler sampler_;
  engine::HeadStage head_;
  int32_t logprob_width_;

  std::vector<Choice> choices_;
  std::vector<int32_t> live_;  // those that go on, by number
  int64_t prompt_to_read_;
  int64_t prompt_done_ = 0;
  bool has_started_ = false;   // a token of each choice was drawn
  std::vector<float> hidden_;  // [choices, dim]
  std::vector<DecodeChunk> chunks_;
  // For a scored prompt: hidden states of a chunk, and the results of those before.
  int32_t prompt_width_;
  std::vector<float> prompt_hidden_;
  std::vector<float> prompt_logprobs_;
  std::vector<int32_t> prompt_ranks_;
  std::vector<int32_t> prompt_ids_;
  std::vector<float> prompt_values_;
  std::vector<engine::HeadRow> rows_;
  std::vector<ChoiceStep> steps_;
  int64_t reported_rows_ = 0;  // of the last Step: Cancel has elements of its own
  GenerationStats stats_;
};

Generator::Impl::Impl(const Checkpoint& checkpoint, const GenerationRequest& request,
                      const GeneratorOptions& options)
    : checkpoint_(checkpoint),
      params_(WithEndTokens(Checked(request, checkpoint, options), checkpoint)),
      stream_(StreamOptions(request, params_, checkpoint.tokenizer())),
      prompt_(request.prompt.begin(), request.prompt.end()),
      max_tokens_(request.max_tokens),
      room_(checkpoint.model().info().context - std::ssize(request.prompt)),
      prompt_chunk_(options.prompt_chunk),
      decoder_(checkpoint.model(),
               OptionsOfDecoder(request, checkpoint.model().info().context, options)),
      sampler_({.vocab = checkpoint.vocab(),
                .max_requests = request.choices,
                .limits = options.limits,
                .backend = options.backend,
                .parallel = options.parallel}),
      head_(OptionsOfHead(checkpoint, request, options)),
      logprob_width_(LogprobWidth(checkpoint, request)),
      prompt_to_read_(TokensToRead(request)),
      prompt_width_(request.prompt_logprobs.has_value() ? 1 + *request.prompt_logprobs : 0) {
  const auto choices = static_cast<size_t>(request.choices);
  choices_.reserve(choices);
  const auto thinking_end = request.thinking.has_value()
                                ? std::make_shared<const engine::SpelledEnd>(
                                      request.thinking->format, checkpoint.tokenizer())
                                : nullptr;
  for (int32_t i = 0; i < request.choices; ++i) {
    const RequestHandle handle =
        sampler_.Add({.params = params_,
                      .prompt = prompt_,
                      .choice = static_cast<uint32_t>(i),
                      .max_new_tokens = static_cast<int32_t>(std::min(max_tokens_, room_))});
    // All choices have the seed of the first; their number separates their noise.
    params_.seed = sampler_.Seed(handle);
    choices_.push_back({.sequence = {},
                        .request = handle,
                        .stream = TextStream(checkpoint.tokenizer(), stream_, prompt_),
                        .text = {},
                        .output = {},
                        .grammar = request.grammar.has_value()
                                       ? std::make_unique<engine::ChoiceMask>(*request.grammar)
                                       : nullptr,
                        .thinking = nullptr});
    if (thinking_end != nullptr) {
      choices_.back().thinking = std::make_unique<engine::ThinkingMask>(
          checkpoint.tokenizer(),
          engine::ThinkingMaskOptions{.budget = *request.thinking,
                                      .end = thinking_end,
                                      .prompt = prompt_,
                                      .answer = choices_.back().grammar.get(),
                                      .stop_tokens = checkpoint.end_tokens(),
                                      .vocab = checkpoint.vocab()});
    }
    choices_.back().text.reserve(kUsualStepText);
    choices_.back().output.reserve(
        static_cast<size_t>(std::min<int64_t>(std::min(max_tokens_, room_), 1 << 20)));
    live_.push_back(i);
  }
  choices_[0].sequence = decoder_.Add();
  hidden_.resize(choices * static_cast<size_t>(checkpoint.model().info().dim));
  chunks_.reserve(choices);
  rows_.reserve(choices);
  steps_.reserve(choices);
  if (prompt_width_ == 0) return;
  const size_t scored = prompt_.size() - 1;
  const auto dim = static_cast<size_t>(checkpoint.model().info().dim);
  prompt_hidden_.resize(static_cast<size_t>(std::min(prompt_chunk_, std::ssize(prompt_))) * dim);
  prompt_logprobs_.reserve(scored);
  prompt_ranks_.reserve(scored);
  prompt_ids_.reserve(scored * static_cast<size_t>(prompt_width_));
  prompt_values_.reserve(scored * static_cast<size_t>(prompt_width_));
}

int64_t Generator::Impl::Prefill() {
  const int64_t length = prompt_to_read_;
  const int64_t count = std::min(prompt_chunk_, length - prompt_done_);
  if (count == 0) return 0;
  engine::Clock clock;
  const bool is_last = prompt_done_ + count == std::ssize(prompt_);
  const bool is_scored = prompt_width_ > 0;
  const DecodeChunk chunk{.sequence = choices_[0].sequence,
                          .tokens = std::span(prompt_).subspan(static_cast<size_t>(prompt_done_),
                                                               static_cast<size_t>(count)),
                          .hidden_rows = is_scored ? count
                                         : is_last ? 1
                                                   : 0};
  const size_t dim = hidden_.size() / choices_.size();
  const auto rows = static_cast<size_t>(chunk.hidden_rows);
  const auto states = std::span(is_scored ? prompt_hidden_ : hidden_).first(rows * dim);
  decoder_.Forward({&chunk, 1}, states);
  if (is_scored && is_last) std::ranges::copy(states.last(dim), hidden_.begin());
  if (is_scored) ScoreChunk(prompt_done_, count);
  prompt_done_ += count;
  stats_.prompt_tokens += count;
  stats_.prefill_ns += clock.Lap();
  return length - prompt_done_;
}

// The tokens after those of a chunk, as far as the prompt has them.
void Generator::Impl::ScoreChunk(int64_t begin, int64_t count) {
  const int64_t scored = std::min(count, std::ssize(prompt_) - 1 - begin);
  if (scored == 0) return;
  const auto at = static_cast<size_t>(begin);
  const auto size = static_cast<size_t>(scored);
  const auto width = static_cast<size_t>(prompt_width_);
  prompt_logprobs_.resize(at + size);
  prompt_ranks_.resize(at + size);
  prompt_ids_.resize((at + size) * width);
  prompt_values_.resize((at + size) * width);
  const int64_t dim = checkpoint_.model().info().dim;
  GenerationStats of_chunk;  // it all counts as the prompt's time
  head_.Score({prompt_hidden_.data(), scored, dim, dim}, std::span(prompt_).subspan(at + 1, size),
              {.logprobs = std::span(prompt_logprobs_).subspan(at),
               .ranks = std::span(prompt_ranks_).subspan(at),
               .lists = {.width = prompt_width_,
                         .ids = std::span(prompt_ids_).subspan(at * width),
                         .values = std::span(prompt_values_).subspan(at * width)}},
              of_chunk);
}

PromptLogprobs Generator::Impl::prompt_logprobs() const {
  if (prompt_logprobs_.empty()) return {};
  return {.first_token = 1,
          .logprobs = prompt_logprobs_,
          .ranks = prompt_ranks_,
          .width = prompt_width_,
          .ids = prompt_ids_,
          .values = prompt_values_};
}

// Every choice goes on from the prompt's one hidden state.
void Generator::Impl::StartChoices() {
  const size_t dim = hidden_.size() / choices_.size();
  for (size_t i = 1; i < choices_.size(); ++i) {
    choices_[i].sequence = decoder_.Fork(choices_[0].sequence, std::ssize(prompt_));
    std::copy_n(hidden_.begin(), dim, hidden_.begin() + static_cast<std::ptrdiff_t>(i * dim));
  }
  has_started_ = true;
}

// Whether the hidden states are those of the last tokens already: of the prompt, or of a step that
// failed after its forward pass.
bool Generator::Impl::IsForwarded() const {
  const Choice& choice = choices_[static_cast<size_t>(live_[0])];
  return decoder_.Length(choice.sequence) == std::ssize(prompt_) + std::ssize(choice.output);
}

// The last token of each choice that goes on.
void Generator::Impl::Forward() {
  engine::Clock clock;
  chunks_.clear();
  for (const int32_t index : live_) {
    const Choice& choice = choices_[static_cast<size_t>(index)];
    chunks_.push_back({.sequence = choice.sequence,
                       .tokens = std::span(choice.output).last(1),
                       .hidden_rows = 1});
  }
  const size_t dim = hidden_.size() / choices_.size();
  decoder_.Forward(chunks_, std::span(hidden_).first(live_.size() * dim));
  stats_.forward_ns += clock.Lap();
}

std::span<const ChoiceStep> Generator::Impl::Step() {
  steps_.clear();
  reported_rows_ = 0;
  if (live_.empty()) return steps_;
  while (Prefill() > 0) {
  }
  if (max_tokens_ == 0) return EndAll(GenerationEnd::kLength);
  if (!has_started_) StartChoices();
  if (!IsForwarded()) Forward();
  rows_.clear();
  for (const int32_t index : live_) {
    const Choice& choice = choices_[static_cast<size_t>(index)];
    rows_.push_back({.request = choice.request, .params = &params_, .mask = choice.mask()});
  }
  const int64_t dim = checkpoint_.model().info().dim;
  head_.Sample({hidden_.data(), std::ssize(live_), dim, dim}, rows_, sampler_, stats_);
  reported_rows_ = std::ssize(live_);
  ++stats_.steps;

  engine::Clock clock;
  const engine::HeadResults& results = head_.results();
  for (size_t row = 0; row < live_.size(); ++row) {
    steps_.push_back(TakeToken(live_[row], results.tokens[row]));
    steps_.back().certificate = results.certificates[row];
  }
  DropEnded();
  stats_.text_ns += clock.Lap();
  return steps_;
}

ChoiceStep Generator::Impl::TakeToken(int32_t index, const TokenResult& token) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.text.clear();
  ChoiceStep step{.choice = index, .token = token};
  if (token.id < 0) {
    step.delta = choice.stream.Finish(choice.text);
    step.end = GenerationEnd::kStatus;
    step.text = choice.text;
    return step;
  }
  choice.output.push_back(token.id);
  ++stats_.output_tokens;
  step.delta = choice.stream.Step({&token.id, 1}, choice.text);
  const int64_t length = std::ssize(choice.output);
  const bool is_full = length == std::min(max_tokens_, room_);
  if (step.delta.finish == FinishReason::kNone && is_full) {
    step.delta = choice.stream.Finish(choice.text);
    step.end = length == max_tokens_ ? GenerationEnd::kLength : GenerationEnd::kContext;
  }
  // A stop string may end in what Finish let out.
  if (step.delta.finish == FinishReason::kStopString) step.end = GenerationEnd::kStopString;
  if (step.delta.finish == FinishReason::kStopToken) step.end = GenerationEnd::kStopToken;
  step.text = choice.text;
  return step;
}

void Generator::Impl::DropEnded() {
  for (const ChoiceStep& step : steps_) {
    if (step.end == GenerationEnd::kNone) continue;
    const Choice& choice = choices_[static_cast<size_t>(step.choice)];
    decoder_.Remove(choice.sequence);
    sampler_.Remove(choice.request);
    std::erase(live_, step.choice);
  }
}

std::span<const ChoiceStep> Generator::Impl::EndAll(GenerationEnd end) {
  steps_.clear();
  for (const int32_t index : live_) {
    Choice& choice = choices_[static_cast<size_t>(index)];
    choice.text.clear();
    ChoiceStep step{.choice = index, .delta = choice.stream.Finish(choice.text)};
    const bool has_stop = step.delta.finish == FinishReason::kStopString;
    step.end = has_stop ? GenerationEnd::kStopString : end;
    step.text = choice.text;
    steps_.push_back(step);
  }
  live_.clear();
  return steps_;
}

std::span<const int32_t> Generator::Impl::OutputTokens(int32_t choice) const {
  CheckInRange("choice", choice, 0, std::ssize(choices_) - 1);
  return choices_[static_cast<size_t>(choice)].output;
}

// The rows of the last Step. What the head has filled before is none of its results.
template <typename T>
std::span<const T> Generator::Impl::Reported(const std::vector<T>& rows) const {
  const size_t width = rows.size() / std::max<size_t>(head_.results().tokens.size(), 1);
  return std::span(rows).first(static_cast<size_t>(reported_rows_) * width);
}

MatrixView Generator::Impl::hidden() const {
  const int64_t dim = checkpoint_.model().info().dim;
  return {hidden_.data(), reported_rows_, dim, dim};
}

LogitsView Generator::Impl::logits() const {
  const std::vector<float>& logits = head_.results().logits;
  if (logits.empty()) return {};
  return {logits.data(), reported_rows_, checkpoint_.vocab(), checkpoint_.vocab()};
}

LogprobRows Generator::Impl::logprobs() const {
  return {logprob_width_, Reported(head_.results().logprob_ids),
          Reported(head_.results().logprob_values)};
}

Generator::Generator(const Checkpoint& checkpoint, const GenerationRequest& request,
                     const GeneratorOptions& options)
    : impl_(std::make_unique<Impl>(checkpoint, request, options)) {}
Generator::~Generator() = default;
Generator::Generator(Generator&&) noexcept = default;
Generator& Generator::operator=(Generator&&) noexcept = default;

Generator::Impl& Generator::Get() const {
  if (impl_ == nullptr) ThrowInvalid("generator", "moved from", "one that has not been moved from");
  return *impl_;
}

const SamplingParams& Generator::params() const { return Get().params(); }
int64_t Generator::Prefill() { return Get().Prefill(); }
std::span<const ChoiceStep> Generator::Step() { return Get().Step(); }
std::span<const ChoiceStep> Generator::Cancel() { return Get().Cancel(); }
int64_t Generator::live_choices() const { return Get().live_choices(); }
std::span<const int32_t> Generator::OutputTokens(int32_t choice) const {
  return Get().OutputTokens(choice);
}
PromptLogprobs Generator::prompt_logprobs() const { return Get().prompt_logprobs(); }
const GenerationStats& Generator::stats() const { return Get().stats(); }
MatrixView Generator::hidden() const { return Get().hidden(); }
LogitsView Generator::logits() const { return Get().logits(); }
std::span<const int32_t> Generator::kept() const { return Get().kept(); }
std::span<const CutMass> Generator::masses() const { return Get().masses(); }
LogprobRows Generator::logprobs() const { return Get().logprobs(); }

}  // namespace sluice
