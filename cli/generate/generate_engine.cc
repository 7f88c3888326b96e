#include "cli/generate/generate_engine.h"

#include <chrono>
#include <iostream>
#include <stdexcept>

#include "cli/engine/client_output.h"
#include "cli/engine/endpoint.h"
#include "cli/generate/generate_engine_json.h"
#include "cli/generate/generate_report.h"
#include "cli/generate/generation.h"
#include "cli/interrupt.h"
#include "cli/replay/record_file.h"
#include "cli/text.h"
#include "cli/usage_error.h"

namespace sluice::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPollTime(50);  // how long Ctrl-C may wait

void EndLine(std::string_view text, std::ostream& out) {
  if (!text.empty() && text.back() != '\n') out << '\n';
  out.flush();
}

class EngineGeneration {
 public:
  EngineGeneration(const GenerateOptions& options, std::ostream& out)
      : options_(options),
        asked_(options.generation),
        out_(out),
        prompt_{.text = ReadPromptText(asked_)},
        record_(options.record_path),
        progress_(asked_.is_quiet),
        model_(OpenModelText(asked_.source)),
        client_(ConnectClient(
            std::span(&options.engine, 1), model_.tokenizer(),
            {.stop_at = options.stop_at,
             .observer = [this](RequestId,
                                const EngineRequest& request) { requests_.push_back(request); }})),
        outputs_(static_cast<size_t>(asked_.choices)) {
    if (asked_.grammar.has_value() && !client_->info().has_grammars) {
      throw std::runtime_error("the engine " + options.engine +
                               " takes no grammars: start it with --grammar-library");
    }
    prompt_ = EncodePrompt(std::move(prompt_.text), asked_, model_, client_->info().context);
  }

  void Run(const Terminal& terminal) {
    SayTruncated(prompt_, asked_);
    const InterruptGuard interrupt;
    if (options_.echoes_prompt && streams()) out_ << prompt_.text << std::flush;
    const Clock::time_point start = Clock::now();
    Submit();
    // A write that fails means that its reader is gone.
    while (client_->live_requests() > 0 && out_) {
      if (interrupt.signal() != 0) Abort();
      for (const ClientOutput& output : client_->Poll(kPollTime)) Take(output);
    }
    if (!out_) return;
    const auto wall = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start);
    progress_.Clear();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      record_.Add({.request = requests_[i], .result = outputs_[i].Result()});
    }
    record_.Close();
    Show(terminal, wall.count());
    interrupt.ThrowIfInterrupted();
    for (const RequestOutput& output : outputs_) {
      ThrowOfGrammar(output);
      const std::string failure = FailureText(output);
      if (!failure.empty()) throw std::runtime_error(failure);
    }
  }

 private:
  // By the flag: the engine has a name of its own for it.
  void ThrowOfGrammar(const RequestOutput& output) const {
    if (output.end != GenerationEnd::kRejected || !asked_.grammar.has_value()) return;
    const std::string_view flag = FlagOf(options_.grammar, *asked_.grammar, output.parameter);
    if (flag.empty() || !output.message.starts_with(output.parameter)) return;
    throw UsageError("--" + std::string(flag) + output.message.substr(output.parameter.size()));
  }

  bool streams() const { return asked_.choices == 1 && !options_.as_json; }

  // All choices have the seed of the first; their number makes their noise differ.
  void Submit() {
    ClientRequest request{.params = asked_.params,
                          .prompt = prompt_.ids,
                          .max_tokens = asked_.max_tokens,
                          .prompt_logprobs = asked_.prompt_logprobs,
                          .text = {.stops = asked_.stops, .include_stop = asked_.include_stop},
                          .grammar = asked_.grammar,
                          .thinking = ThinkingOf(asked_, model_, prompt_.ids),
                          .ignores_end = asked_.ignores_end};
    for (int32_t choice = 0; choice < asked_.choices; ++choice) {
      request.choice = static_cast<uint32_t>(choice);
      ids_.push_back(client_->Submit(request));
      request.params.seed = client_->Seed(ids_[0]);
      request.prompt_logprobs.reset();  // the prompt is the same
    }
    seed_ = *request.params.seed;
  }

  void Abort() {
    for (size_t i = 0; i < ids_.size(); ++i) {
      if (outputs_[i].end == GenerationEnd::kNone) client_->Abort(ids_[i]);
    }
  }

  void Take(const ClientOutput& output) {
    const auto place = std::find(ids_.begin(), ids_.end(), output.request);
    outputs_[static_cast<size_t>(place - ids_.begin())].Add(output);
    if (streams()) {
      out_ << output.text << std::flush;
    } else {
      progress_.Show("generating", OutputTokens(), asked_.choices * asked_.max_tokens);
    }
  }

  int64_t OutputTokens() const {
    int64_t tokens = 0;
    for (const RequestOutput& output : outputs_) tokens += output.output_tokens;
    return tokens;
  }

  std::string EndOf(const RequestOutput& output) const {
    return EndText({.end = output.end,
                    .stop = output.stop,
                    .stop_token = output.stop_token,
                    .status = output.status,
                    .message = output.message},
                   asked_, model_.tokenizer(), client_->info().context);
  }

  void Show(const Terminal& terminal, int64_t wall_ns) const {
    if (options_.as_json) {
      WriteEngineGeneration({.options = options_,
                             .prompt = prompt_,
                             .client = *client_,
                             .requests = requests_,
                             .outputs = outputs_,
                             .wall_ns = wall_ns},
                            out_);
      return;
    }
    for (size_t i = 0; i < outputs_.size() && !streams(); ++i) {
      const std::string heading = "--- " + Number(i + 1) + " of " + Number(outputs_.size()) +
                                  ", ended by " + EndOf(outputs_[i]) + " ---";
      const std::string text = (options_.echoes_prompt ? prompt_.text : "") + outputs_[i].text;
      out_ << terminal.Styled(heading, Style::kHeading) << '\n' << text;
      EndLine(text, out_);
    }
    if (streams()) EndLine((options_.echoes_prompt ? prompt_.text : "") + outputs_[0].text, out_);
    if (asked_.is_quiet) return;
    if (streams()) {
      std::cerr << "  ended by " << EndOf(outputs_[0]) << '\n';
    }
    std::cerr << "  " << Count(OutputTokens(), "token") << " in " << Duration(wall_ns) << ", "
              << Rate(OutputTokens(), wall_ns) << ", the prompt of "
              << Count(std::ssize(prompt_.ids), "token") << " included\n"
              << "  engine " << options_.engine << ", model " << client_->info().model
              << ", stops at " << Name(options_.stop_at) << "; seed " << seed_ << '\n';
  }

  const GenerateOptions& options_;
  const GenerationOptions& asked_;
  std::ostream& out_;
  Prompt prompt_;  // its text is read first: what is wrong with it is known without the model
  RecordFile record_;
  ProgressLine progress_;
  ModelText model_;
  std::vector<EngineRequest> requests_;  // as the engine got them
  std::unique_ptr<Client> client_;
  std::vector<RequestId> ids_;
  std::vector<RequestOutput> outputs_;
  uint64_t seed_ = 0;
};

}  // namespace

void RunGenerateThroughEngine(const GenerateOptions& options, std::ostream& out,
                              const Terminal& terminal) {
  CheckEndpoint("engine", options.engine);
  EngineGeneration(options, out).Run(terminal);
}

}  // namespace sluice::cli
