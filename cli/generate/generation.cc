#include "cli/generate/generation.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "cli/flags/grammar_flags.h"
#include "cli/inspect/candidates.h"
#include "cli/text.h"
#include "sluice/detokenizer.hpp"
#include "support/registry.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

int64_t NanosecondsSince(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

}  // namespace

std::optional<ThinkingBudget> ThinkingOf(const GenerationOptions& options, const ModelText& text,
                                         std::span<const int32_t> prompt) {
  if (!options.thinking_tokens.has_value()) return std::nullopt;
  ThinkingBudget thinking{.format = DetectReasoningFormat(text.chat_template()),
                          .tokens = *options.thinking_tokens};
  if (thinking.format == ReasoningFormat::kNone) thinking.format = ReasoningFormat::kDeepSeek;
  thinking.is_open = OpensReasoning(thinking.format, text.tokenizer(), prompt);
  return thinking;
}

Generation::Generation(const GenerationOptions& options, const GenerationReports& reports)
    : options_(options),
      prompt_{.text = ReadPromptText(options)},
      start_(Clock::now()),
      progress_(options.is_quiet),
      threads_(ThreadsFor(options.source)),
      pool_(threads_),
      checkpoint_(OpenModel(options.source, pool_.parallel(), progress_)) {
  prompt_ = EncodePrompt(std::move(prompt_.text), options, checkpoint_.text(),
                         checkpoint_.model().info().context);

  HeadPlaneOptions plane_options;
  plane_options.progress = [](void* context, int64_t rows, int64_t vocab) {
    static_cast<ProgressLine*>(context)->Show("building the head's planes", rows, vocab);
  };
  plane_options.progress_context = &progress_;
  const std::optional<HeadPlanes> planes = HeadPlanesFor(options.head, checkpoint_, options.params,
                                                         reports, plane_options, pool_.parallel());
  progress_.Clear();
  if (planes.has_value()) {
    head_ = planes->kind() == CertificateKind::kStrict ? HeadChoice::kStrict : HeadChoice::kDither4;
  }
  const std::shared_ptr<TopKHead> top_k_head =
      ClusterHeadFor(options.head, options.head_file, checkpoint_, options.backend,
                     pool_.parallel(), progress_, clusters_);
  if (top_k_head != nullptr) head_ = HeadChoice::kClusters;
  std::optional<Grammar> grammar;
  if (options.grammar.has_value()) {
    const GrammarLibrary library = OpenGrammarLibrary(options.grammar_library);
    GrammarCompiler compiler(library, checkpoint_.tokenizer(), checkpoint_.end_tokens(),
                             static_cast<int32_t>(checkpoint_.vocab()));
    grammar =
        compiler.Compile(options.grammar->kind, options.grammar->text, options.grammar->options);
  }
  thinking_ = ThinkingOf(options, checkpoint_.text(), prompt_.ids);
  generator_ =
      std::make_unique<Generator>(checkpoint_,
                                  GenerationRequest{.params = options.params,
                                                    .prompt = prompt_.ids,
                                                    .choices = options.choices,
                                                    .max_tokens = options.max_tokens,
                                                    .prompt_logprobs = options.prompt_logprobs,
                                                    .stops = options.stops,
                                                    .include_stop = options.include_stop,
                                                    .ignores_end = options.ignores_end,
                                                    .grammar = grammar,
                                                    .thinking = thinking_},
                                  GeneratorOptions{.planes = planes,
                                                   .top_k_head = top_k_head,
                                                   .prompt_chunk = 128,
                                                   .reports = reports,
                                                   .backend = options.backend,
                                                   .parallel = pool_.parallel()});
  load_ns_ = NanosecondsSince(start_);
}

void Generation::Prefill(const InterruptGuard& interrupt) {
  const int64_t length = std::ssize(prompt_.ids);
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
  std::vector<int32_t> tokens(prompt_.ids);
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
               .prompt_length = prompt_.ids.size()},
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
