// A step on the CPU: slots change hands, one forward pass takes the rows of all requests, the head
// projects the last position of those that sample.
#include "sluice/model_runner.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <string>
#include <utility>

#include "engine/clock.h"
#include "engine/prompt_entries.h"
#include "engine/runner/draft_stage.h"
#include "engine/runner/head_stage.h"
#include "engine/runner/model_runner_options.h"
#include "engine/step_slots.h"
#include "engine/step_store.h"
#include "sluice/decoder.hpp"
#include "sluice/sampler.hpp"
#include "support/check.h"

namespace sluice {
class ModelRunner::Impl {
 public:
  Impl(const Checkpoint& checkpoint, const ModelRunnerOptions& options)
      : checkpoint_(checkpoint),
        decoder_(checkpoint.model(),
                 engine::OptionsOfDecoder(checkpoint.model(), engine::Checked(options))),
        sampler_({.vocab = checkpoint.vocab(),
                  .max_requests = options.max_requests,
                  .limits = options.limits,
                  .backend = options.backend,
                  .parallel = options.parallel}),
        head_(engine::OptionsOfHead(checkpoint, options)),
        drafts_(options.draft_tokens, options.max_requests, checkpoint.model().info().dim,
                checkpoint.vocab(), engine::WidestLists(checkpoint, options.max_logprobs)),
        info_(engine::InfoOf(checkpoint, options, decoder_)),
        slots_(info_),
        ring_(info_),
        requests_(static_cast<size_t>(options.max_requests)),
        prefixes_(static_cast<size_t>(options.max_prefixes)) {
    const size_t rows = requests_.size();
    for (Request& request : requests_) request.failure.reserve(engine::kMostFailureBytes);
    const auto inputs = static_cast<size_t>(options.max_step_tokens + engine::DraftInputs(options));
    hidden_.resize(inputs * static_cast<size_t>(checkpoint.model().info().dim));
    const int64_t most_entries = engine::MostPromptEntries(info_);
    const auto scored = static_cast<size_t>(std::min(options.max_step_tokens, most_entries));
    const auto width = static_cast<size_t>(engine::WidestLists(checkpoint, options.max_logprobs));
    const size_t entries = std::min(static_cast<size_t>(most_entries), scored * width);
    prompt_logprobs_.resize(scored);
    prompt_ranks_.resize(scored);
    prompt_ids_.resize(entries);
    prompt_values_.resize(entries);
    chunks_.reserve(rows);
    scored_.reserve(rows);
    head_rows_.reserve(rows);
    sampled_.reserve(rows);
    sampled_hidden_.reserve(rows);
  }

  const RunnerInfo& info() const { return info_; }
  const GenerationStats& stats() const { return stats_; }

  void Launch(const StepPlan& plan) {
    if (is_broken_) ThrowInvalid("runner", "one that has thrown in a step", "one that has not");
    ring_.CheckLaunch();
    slots_.Apply(plan);
    is_broken_ = true;
    for (const KeptPrefix& kept : plan.kept) Keep(kept);
    for (const int32_t slot : plan.ended) End(slot);
    for (const int32_t slot : plan.preempted) Preempt(slot);
    for (const RunnerRequest& request : plan.begun) Begin(request);
    for (const SharedPrefix& shared : plan.shared) Share(shared);
    for (const TrimmedPrefix& trimmed : plan.trimmed) Trim(trimmed);
    Compute(plan.rows);
    is_broken_ = false;
  }

  const StepResults& Await() {
    ring_.CheckAwait();
    return ring_.At(ring_.Await()).results();
  }

 private:
  struct Request {
    bool has_state = false;     // in the sampler, and
    bool has_sequence = false;  // in the decoder
    SequenceHandle sequence = {};
    RequestHandle request = {};
    SamplingParams params = {};
    int32_t logprob_width = 0;
    int32_t prompt_logprob_width = 0;
    int32_t last_token = -1;
    int64_t most_tokens = 0;  // prompt and output
    DrawMask* mask = nullptr;
    std::string failure;  // why it cannot go on
    ErrorCode failure_code = ErrorCode::kUnavailable;
  };

  Request& At(int32_t slot) { return requests_[static_cast<size_t>(slot)]; }
  SequenceHandle& PrefixAt(int32_t prefix) { return prefixes_[static_cast<size_t>(prefix)]; }
  size_t WidthOf(int32_t slot) const {
    return static_cast<size_t>(requests_[static_cast<size_t>(slot)].prompt_logprob_width);
  }

  void End(int32_t slot) {
    Request& request = At(slot);
    request.failure.clear();
    if (!request.has_state) return;
    request.has_state = false;
    request.params = {};
    sampler_.Remove(request.request);
    if (request.has_sequence) decoder_.Remove(std::exchange(request.sequence, {}));
  }

  // The sequence changes its owner.
  void Keep(const KeptPrefix& kept) {
    Request& request = At(kept.slot);
    decoder_.Truncate(request.sequence, kept.tokens);
    PrefixAt(kept.prefix) = std::exchange(request.sequence, {});
    request.has_sequence = false;
  }

  void Share(const SharedPrefix& shared) {
    Request& request = At(shared.slot);
    if (!request.has_state) return;  // it could not begin
    decoder_.Remove(request.sequence);
    request.sequence = decoder_.Fork(PrefixAt(shared.prefix), shared.tokens);
  }

  void Trim(const TrimmedPrefix& trimmed) {
    const SequenceHandle prefix = PrefixAt(trimmed.prefix);
    trimmed.tokens == 0 ? decoder_.Remove(prefix) : decoder_.Truncate(prefix, trimmed.tokens);
  }

  void Preempt(int32_t slot) {
    if (At(slot).has_state) decoder_.Truncate(At(slot).sequence, 0);
  }

  void Begin(const RunnerRequest& request);
  void Add(const RunnerRequest& request);
  void Fail(int32_t slot, std::string_view why, ErrorCode code = ErrorCode::kUnavailable) {
    slots_.Fail(slot);
    At(slot).failure_code = code;
    At(slot).failure.assign(engine::KeptFailure(why));
  }

  // A row with prompt tokens to score, and where its hidden states and its lists begin.
  struct ScoredRow {
    int32_t slot;
    int64_t first_token;
    size_t count;
    size_t hidden;
    size_t token;
    size_t entry;
  };

  void Compute(std::span<const StepRow> rows);
  void BeginStep(std::span<const StepRow> rows);
  void ListRow(const StepRow& row);
  void Forward();
  void Score();
  void Sample();
  PromptLogprobs PromptOf(const ScoredRow& row) const;
  void TakeToken(size_t index, StepRowResult& result);
  void Verify();
  void TakeDrafted(size_t index, StepRowResult& result);
  void Note(int32_t slot, const TokenResult& last, int64_t given);

  Checkpoint checkpoint_;
  Decoder decoder_;
  Sampler sampler_;
  engine::HeadStage head_;
  engine::DraftStage drafts_;
  RunnerInfo info_;
  engine::StepSlots slots_;
  engine::StepRing ring_;
  std::vector<Request> requests_;  // by slot
  std::vector<SequenceHandle> prefixes_;
  bool is_broken_ = false;
  GenerationStats stats_;

  // The state of the step:
  std::vector<float> hidden_;  // [hidden_rows_, dim]: the last positions of each row
  size_t hidden_rows_ = 0;
  std::vector<DecodeChunk> chunks_;
  std::vector<engine::HeadRow> head_rows_;
  std::vector<int32_t> sampled_;        // slots of the head's rows
  std::vector<size_t> sampled_hidden_;  // where their hidden states are
  std::vector<ScoredRow> scored_;
  std::vector<float> prompt_logprobs_;
  std::vector<int32_t> prompt_ranks_;
  std::vector<int32_t> prompt_ids_;
  std::vector<float> prompt_values_;
};

// A failure here concerns this request alone.
void ModelRunner::Impl::Begin(const RunnerRequest& request) {
  try {
    Add(request);
  } catch (const Error& error) {
    Fail(request.slot, error.what(), error.code());
  } catch (const std::bad_alloc&) {
    Fail(request.slot, "no memory for the request", ErrorCode::kExhausted);
  }
}

void ModelRunner::Impl::Add(const RunnerRequest& from) {
  if (from.params == nullptr) ThrowInvalid("params", "null", "parameters of the request");
  const int64_t length = std::ssize(from.prompt);
  CheckInRange("tokens of the prompt", length, 1, info_.context - 1);
  CheckInRange("max_tokens", from.max_tokens, 0, INT64_MAX);
  const std::optional<int32_t>& listed = from.params->logprobs;
  if (listed.has_value() && info_.max_logprobs >= 0) {
    CheckInRange("logprobs", *listed, 0, info_.max_logprobs);
  }
  CheckInRange("prompt_logprob_width", from.prompt_logprob_width, 0,
               engine::WidestLists(checkpoint_, info_.max_logprobs));
  Request& request = At(from.slot);
  request.params = *from.params;
  request.mask = from.mask;
  const int64_t room = std::min<int64_t>(info_.context - length, INT32_MAX);
  request.request =
      sampler_.Add({.params = request.params,
                    .prompt = from.prompt,
                    .choice = from.choice,
                    .max_new_tokens = static_cast<int32_t>(std::min(from.max_tokens, room))});
  request.most_tokens = length + std::min(from.max_tokens, room);
  if (info_.max_given_tokens > 1) drafts_.BeginRequest(from.slot);
  request.sequence = decoder_.Add();
  request.has_state = request.has_sequence = true;
  const auto vocab = static_cast<int32_t>(info_.vocab);
  request.logprob_width = listed.has_value() ? 1 + (*listed < 0 ? vocab : *listed) : 0;
  request.prompt_logprob_width = from.prompt_logprob_width;
}

void ModelRunner::Impl::BeginStep(std::span<const StepRow> rows) {
  chunks_.clear();
  head_rows_.clear();
  sampled_.clear();
  sampled_hidden_.clear();
  scored_.clear();
  hidden_rows_ = 0;
  drafts_.BeginStep(std::ranges::count_if(rows, &StepRow::samples));
}

void ModelRunner::Impl::Compute(std::span<const StepRow> rows) {
  const GenerationStats before = stats_;
  BeginStep(rows);
  for (const StepRow& row : rows) ListRow(row);
  Forward();
  Score();
  Verify();
  Sample();
  engine::StepStore& store = ring_.At(ring_.Launch());
  store.Clear();
  size_t sampled = 0, scored = 0, drafted = 0;
  for (const StepRow& row : rows) {
    StepRowResult result;
    result.failure = At(row.slot).failure;
    result.failure_code = At(row.slot).failure_code;
    const bool is_scored = scored < scored_.size() && scored_[scored].slot == row.slot;
    const bool is_next = sampled < sampled_.size() && sampled_[sampled] == row.slot;
    const bool is_drafted = drafted < drafts_.rows() && drafts_.slot(drafted) == row.slot;
    if (result.failure.empty()) {  // its prompt can be scored, as far as it was
      if (is_scored) result.prompt = PromptOf(scored_[scored]);
      if (is_next) TakeToken(sampled, result);
      if (is_drafted) TakeDrafted(drafted, result);
    }
    scored += is_scored ? 1 : 0;
    sampled += is_next ? 1 : 0;
    drafted += is_drafted ? 1 : 0;
    store.Add(result);
  }
  ++stats_.steps;
  store.Finish({.forward_ns = stats_.forward_ns - before.forward_ns,
                .head_ns = stats_.head_ns - before.head_ns,
                .select_ns = stats_.select_ns - before.select_ns},
               {.tried = stats_.draft_tokens - before.draft_tokens,
                .accepted = stats_.accepted_draft_tokens - before.accepted_draft_tokens});
}

void ModelRunner::Impl::ListRow(const StepRow& row) {
  if (slots_.At(row.slot).has_failed) return;
  const Request& request = At(row.slot);
  // The sampler has every token of the request.
  const std::span<const int32_t> known = sampler_.Tokens(request.request);
  const int64_t begin = decoder_.Length(request.sequence);
  std::span<const int32_t> tokens = row.tokens;
  if (tokens.empty()) tokens = {&request.last_token, 1};
  if (!std::ranges::equal(tokens, known.subspan(static_cast<size_t>(begin), tokens.size()))) {
    Fail(row.slot, "its row has other tokens than its prompt and output");
    return;
  }
  const int64_t prompt = sampler_.PromptLength(request.request);
  const int64_t end = begin + std::ssize(tokens);
  stats_.prompt_tokens += std::min(end, prompt) - std::min(begin, prompt);
  int64_t hidden_rows = row.samples ? 1 : 0;
  if (row.scored > 0) {
    const bool is_first = scored_.empty();
    const ScoredRow* const last = is_first ? nullptr : &scored_.back();
    hidden_rows = end - (row.first_scored - 1);
    scored_.push_back({.slot = row.slot,
                       .first_token = row.first_scored,
                       .count = static_cast<size_t>(row.scored),
                       .hidden = hidden_rows_,
                       .token = is_first ? 0 : last->token + last->count,
                       .entry = is_first ? 0 : last->entry + last->count * WidthOf(last->slot)});
  }
  std::span<const int32_t> drafted;
  if (row.tokens.empty()) {
    drafted = drafts_.Add({.slot = row.slot,
                           .request = request.request,
                           .params = &request.params,
                           .known = known,
                           .most_tokens = request.most_tokens,
                           .hidden_row = hidden_rows_,
                           .mask = request.mask});
  }
  if (!drafted.empty()) {
    tokens = drafted;
    hidden_rows = std::ssize(drafted);
  }
  hidden_rows_ += static_cast<size_t>(hidden_rows);
  chunks_.push_back({.sequence = request.sequence, .tokens = tokens, .hidden_rows = hidden_rows});
  if (!row.samples || !drafted.empty()) return;
  sampled_hidden_.push_back(hidden_rows_ - 1);
  head_rows_.push_back(
      {.request = request.request, .params = &request.params, .mask = request.mask});
  sampled_.push_back(row.slot);
}

void ModelRunner::Impl::Forward() {
  if (chunks_.empty()) return;
  engine::Clock clock;
  const auto dim = static_cast<size_t>(checkpoint_.model().info().dim);
  decoder_.Forward(chunks_, std::span(hidden_).first(hidden_rows_ * dim));
  stats_.forward_ns += clock.Lap();
}

void ModelRunner::Impl::Score() {
  const int64_t dim = checkpoint_.model().info().dim;
  for (const ScoredRow& row : scored_) {
    const size_t width = WidthOf(row.slot);
    const auto known = sampler_.Tokens(At(row.slot).request);
    const auto logprobs = std::span(prompt_logprobs_).subspan(row.token, row.count);
    head_.Score(
        {hidden_.data() + row.hidden * static_cast<size_t>(dim), static_cast<int64_t>(row.count),
         dim, dim},
        known.subspan(static_cast<size_t>(row.first_token), row.count),
        {.logprobs = logprobs,
         .ranks = std::span(prompt_ranks_).subspan(row.token, row.count),
         .lists = {.width = static_cast<int32_t>(width),
                   .ids = std::span(prompt_ids_).subspan(row.entry, row.count * width),
                   .values = std::span(prompt_values_).subspan(row.entry, row.count * width)}},
        stats_);
    if (std::ranges::none_of(logprobs, [](float value) { return std::isnan(value); })) continue;
    Fail(row.slot, "the model's logits after a token of its prompt are no numbers");
  }
}

PromptLogprobs ModelRunner::Impl::PromptOf(const ScoredRow& row) const {
  const size_t width = WidthOf(row.slot);
  return {.first_token = row.first_token,
          .logprobs = std::span(prompt_logprobs_).subspan(row.token, row.count),
          .ranks = std::span(prompt_ranks_).subspan(row.token, row.count),
          .width = static_cast<int32_t>(width),
          .ids = std::span(prompt_ids_).subspan(row.entry, row.count * width),
          .values = std::span(prompt_values_).subspan(row.entry, row.count * width)};
}

// The head takes the hidden states one after the other: none moves onto one that is still needed.
void ModelRunner::Impl::Sample() {
  if (head_rows_.empty()) return;
  const int64_t dim = checkpoint_.model().info().dim;
  const auto state = [&](size_t row) { return hidden_.begin() + static_cast<int64_t>(row) * dim; };
  for (size_t i = 0; i < sampled_hidden_.size(); ++i) {
    if (sampled_hidden_[i] != i) std::copy_n(state(sampled_hidden_[i]), dim, state(i));
  }
  head_.Sample({hidden_.data(), std::ssize(head_rows_), dim, dim}, head_rows_, sampler_, stats_);
}

// The result of the head for its row of that index.
void ModelRunner::Impl::TakeToken(size_t index, StepRowResult& result) {
  const engine::HeadResults& results = head_.results();
  const TokenResult& token = results.tokens[index];
  const int32_t slot = sampled_[index];
  const Request& request = At(slot);
  const auto width = static_cast<size_t>(request.logprob_width);
  const auto at = index * static_cast<size_t>(results.logprob_width);
  result.tokens = {&token, 1};
  result.logprob_width = request.logprob_width;
  result.logprob_ids = std::span(results.logprob_ids).subspan(at, width);
  result.logprob_values = std::span(results.logprob_values).subspan(at, width);
  Note(slot, token, 1);
}

// Before Sample, which moves hidden states. What the model has read of wrong drafts is forgotten.
void ModelRunner::Impl::Verify() {
  drafts_.Verify(hidden_, head_, sampler_, stats_);
  for (size_t i = 0; i < drafts_.rows(); ++i) {
    const SequenceHandle sequence = At(drafts_.slot(i)).sequence;
    const int64_t wrong = drafts_.drafted(i) - drafts_.accepted(i);
    if (wrong > 0) decoder_.Truncate(sequence, decoder_.Length(sequence) - wrong);
  }
}

void ModelRunner::Impl::TakeDrafted(size_t index, StepRowResult& result) {
  const int32_t slot = drafts_.slot(index);
  const StepRowResult drafted = drafts_.Result(index, head_, At(slot).logprob_width);
  result.tokens = drafted.tokens;
  result.logprob_width = drafted.logprob_width;
  result.logprob_ids = drafted.logprob_ids;
  result.logprob_values = drafted.logprob_values;
  Note(slot, result.tokens.back(), std::ssize(result.tokens));
}

// What the next step goes on from.
void ModelRunner::Impl::Note(int32_t slot, const TokenResult& last, int64_t given) {
  const bool has_ended = last.id < 0;
  stats_.output_tokens += given - (has_ended ? 1 : 0);
  if (has_ended) {
    Fail(slot, "its last row has ended with a status");
    return;
  }
  At(slot).last_token = last.id;
  slots_.Give(slot, given);
}

ModelRunner::ModelRunner(const Checkpoint& checkpoint, const ModelRunnerOptions& options)
    : impl_(std::make_unique<Impl>(checkpoint, options)) {}
ModelRunner::~ModelRunner() = default;

const RunnerInfo& ModelRunner::info() const { return impl_->info(); }
void ModelRunner::Launch(const StepPlan& plan) { impl_->Launch(plan); }
const StepResults& ModelRunner::Await() { return impl_->Await(); }
const GenerationStats& ModelRunner::stats() const { return impl_->stats(); }

}  // namespace sluice
