#include "cli/generation.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "backend/registry.h"
#include "cli/candidates.h"
#include "cli/file.h"
#include "cli/text.h"
#include "sluice/detokenizer.hpp"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

int64_t NanosecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

std::string ReadPrompt(const GenerationOptions& options) {
  if (!options.prompt_path.empty()) return ReadTextFile("prompt-file", options.prompt_path);
  if (!options.prompt.has_value()) {
    throw Error(ErrorCode::kInvalidValue, "PROMPT", "none",
                "a text, - for standard input, or --prompt-file FILE");
  }
  return *options.prompt == "-" ? ReadTextFile("PROMPT", "-") : *options.prompt;
}

}  // namespace

Generation::Generation(const GenerationOptions& options, const GenerationReports& reports)
    : options_(options),
      prompt_text_(ReadPrompt(options)),
      start_(Clock::now()),
      progress_(options.is_quiet),
      threads_(ThreadsFor(options.source)),
      pool_(threads_),
      checkpoint_(OpenModel(options.source, pool_.parallel(), progress_)) {
  prompt_ = EncodePrompt();
  const ModelInfo& info = checkpoint_.model().info();
  const int64_t length = std::ssize(prompt_);
  if (length >= info.context && !options.truncates_prompt) {
    throw Error(ErrorCode::kInvalidValue, "PROMPT", Number(length) + " tokens",
                "fewer than the " + Number(info.context) +
                    " of the model's context; --truncate-prompt leaves out its beginning");
  }
  if (options.truncates_prompt) {
    // What the model wants in front of every text stays.
    const std::vector<int32_t> around = checkpoint_.tokenizer().Encode("");
    const bool has_first = !around.empty() && !prompt_.empty() && prompt_[0] == around[0];
    prompt_ = TruncatePrompt(prompt_, info.context, options.max_tokens, has_first ? 1 : 0);
    truncated_tokens_ = length - std::ssize(prompt_);
  }

  HeadPlaneOptions plane_options;
  plane_options.progress = [](void* context, int64_t rows, int64_t vocab) {
    static_cast<ProgressLine*>(context)->Show("building the head's planes", rows, vocab);
  };
  plane_options.progress_context = &progress_;
  const std::optional<HeadPlanes> planes =
      HeadPlanesFor(options.head, checkpoint_, options.params, plane_options, pool_.parallel());
  progress_.Clear();
  if (planes.has_value()) {
    head_ = planes->kind() == CertificateKind::kStrict ? HeadChoice::kStrict : HeadChoice::kDither4;
  }
  generator_ = std::make_unique<Generator>(checkpoint_,
                                           GenerationRequest{.params = options.params,
                                                             .prompt = prompt_,
                                                             .choices = options.choices,
                                                             .max_tokens = options.max_tokens,
                                                             .stops = options.stops,
                                                             .include_stop = options.include_stop,
                                                             .ignores_end = options.ignores_end},
                                           GeneratorOptions{.planes = planes,
                                                            .prompt_chunk = 128,
                                                            .reports = reports,
                                                            .backend = options.backend,
                                                            .parallel = pool_.parallel()});
  load_ns_ = NanosecondsSince(start_);
}

std::vector<int32_t> Generation::EncodePrompt() {
  EncodeOptions encoding{.add_special_tokens = options_.adds_special_tokens,
                         .parse_special_tokens = options_.parses_special_tokens};
  if (options_.is_chat) {
    std::vector<ChatMessage> messages;
    if (!options_.system.empty()) messages.push_back({"system", options_.system});
    messages.push_back({"user", prompt_text_});
    prompt_text_ = checkpoint_.RenderChat(messages);
    // The template has written all special tokens itself.
    encoding = {.add_special_tokens = false, .parse_special_tokens = true};
  }
  return checkpoint_.tokenizer().Encode(prompt_text_, encoding);
}

void Generation::Prefill(const InterruptGuard& interrupt) {
  const int64_t length = std::ssize(prompt_);
  for (int64_t left = length; left > 0;) {
    left = generator_->Prefill();
    progress_.Show("prompt", length - left, length);
    interrupt.ThrowIfInterrupted();
  }
  progress_.Clear();
}

std::string_view Generation::backend_name() const {
  const Backend backend = ResolveBackend(options_.backend);
  for (const BackendInfo& info : Backends()) {
    if (info.backend == backend) return info.name;
  }
  return "unknown";
}

std::vector<int32_t> Generation::TokensBefore(const ChoiceStep& step) const {
  std::span<const int32_t> output = generator_->OutputTokens(step.choice);
  if (step.token.id >= 0) output = output.first(output.size() - 1);
  std::vector<int32_t> tokens(prompt_);
  tokens.insert(tokens.end(), output.begin(), output.end());
  return tokens;
}

std::vector<Explanation> Generation::ExplainStep(const ChoiceStep& step, int64_t row,
                                                 int64_t count) const {
  LogitsView logits = generator_->logits();
  logits.data = logits.Row(row);
  logits.rows = 1;
  const std::vector<int32_t> tokens = TokensBefore(step);
  std::vector<int32_t> ids = FirstIds(logits, std::max<int64_t>(count, 1));
  if (step.token.id >= 0 && std::find(ids.begin(), ids.end(), step.token.id) == ids.end()) {
    ids.push_back(step.token.id);
  }
  const SamplingParams& params = generator_->params();
  std::vector<Explanation> explained =
      Explain({.logits = logits,
               .params = params,
               .key = {*params.seed, static_cast<uint32_t>(tokens.size()),
                       static_cast<uint32_t>(step.choice)},
               .tokens = tokens,
               .prompt_length = prompt_.size()},
              ids);
  const Explanation& first = explained.front();
  if (!(first.cut == step.token.cut) || first.drawn_id != step.token.id) {
    throw std::runtime_error("the step did not give what the definition gives");
  }
  return explained;
}

std::string Generation::TokenText(const ChoiceStep& step, int32_t id) const {
  const std::vector<int32_t> before = TokensBefore(step);
  Detokenizer detokenizer(checkpoint_.tokenizer(), {.skip_special_tokens = false}, before);
  std::string text;
  detokenizer.Step({&id, 1}, text);
  detokenizer.Finish(text);
  return QuotedLine(text);
}

}  // namespace sluice::cli
