#include "cli/generate/generate_view.h"

#include <iostream>
#include <sstream>

#include "cli/generate/generate_json.h"
#include "cli/inspect/candidates.h"
#include "cli/live_block.h"
#include "cli/text.h"

namespace sluice::cli {
namespace {

void EndLine(std::string_view text, std::ostream& out) {
  if (!text.empty() && text.back() != '\n') out << '\n';
  out.flush();
}

// What standard error says of one choice: why it ended, and the statistics.
void SayEnd(const Generation& generation, std::span<const ChoiceState> choices,
            const GenerateTimes& times) {
  if (generation.options().is_quiet) return;
  if (choices.size() == 1) {
    const ChoiceState& choice = choices[0];
    std::cerr << "  ended by " << EndText(choice.end, choice.delta, choice.last, generation)
              << '\n';
  }
  PrintStatistics(generation, times, std::cerr);
}

// One choice, its text as it comes.
class StreamView : public GenerateView {
 public:
  StreamView(const GenerateOptions& options, const Generation& generation, std::ostream& out,
             const Terminal& terminal)
      : options_(options), generation_(generation), out_(out), terminal_(terminal) {}

  void Begin() override {
    if (!options_.echoes_prompt) return;
    out_ << terminal_.Printable(generation_.prompt().text) << std::flush;
  }
  void Show(std::span<const ChoiceStep> steps, std::span<const ChoiceState>) override {
    for (const ChoiceStep& step : steps) out_ << terminal_.Printable(step.text);
    out_.flush();
  }
  void End(std::span<const ChoiceState> choices, const GenerateTimes& times) override {
    EndLine((options_.echoes_prompt ? generation_.prompt().text : "") + choices[0].text, out_);
    SayEnd(generation_, choices, times);
  }

 private:
  const GenerateOptions& options_;
  const Generation& generation_;
  std::ostream& out_;
  const Terminal& terminal_;
};

// Several choices, one after the other when all are done.
class ChoicesView : public GenerateView {
 public:
  ChoicesView(const GenerateOptions& options, const Generation& generation, std::ostream& out,
              const Terminal& terminal)
      : options_(options),
        generation_(generation),
        out_(out),
        terminal_(terminal),
        progress_(options.generation.is_quiet) {}

  void Show(std::span<const ChoiceStep>, std::span<const ChoiceState>) override {
    const GenerationOptions& asked = options_.generation;
    progress_.Show("generating", generation_.generator().stats().output_tokens,
                   asked.choices * asked.max_tokens);
  }
  void End(std::span<const ChoiceState> choices, const GenerateTimes& times) override {
    progress_.Clear();
    for (size_t i = 0; i < choices.size(); ++i) {
      const ChoiceState& choice = choices[i];
      const std::string heading =
          "--- " + Number(i + 1) + " of " + Number(choices.size()) + ", ended by " +
          EndText(choice.end, choice.delta, choice.last, generation_) + " ---";
      const std::string text = terminal_.Printable(
          (options_.echoes_prompt ? generation_.prompt().text : "") + choice.text);
      out_ << terminal_.Styled(heading, Style::kHeading) << '\n' << text;
      EndLine(text, out_);
    }
    SayEnd(generation_, choices, times);
  }

 private:
  const GenerateOptions& options_;
  const Generation& generation_;
  std::ostream& out_;
  const Terminal& terminal_;
  ProgressLine progress_;
};

// Every token with its candidates: on a terminal a table that is drawn again for each, and the text
// when it is done; else one table after the other.
class CandidatesView : public GenerateView {
 public:
  CandidatesView(const GenerateOptions& options, const Generation& generation, std::ostream& out,
                 const Terminal& terminal)
      : options_(options),
        generation_(generation),
        out_(out),
        terminal_(terminal),
        block_(out),
        is_live_(terminal.can_redraw && options.generation.choices == 1) {}

  void Show(std::span<const ChoiceStep> steps, std::span<const ChoiceState> choices) override {
    for (size_t row = 0; row < steps.size(); ++row) {
      const ChoiceStep& step = steps[row];
      if (step.token.id < 0 && step.token.status == RowStatus::kOk) continue;  // of Cancel
      const std::string& text = choices[static_cast<size_t>(step.choice)].text;
      if (is_live_) {
        DrawLive(step, text);
      } else {
        PrintTable(step, static_cast<int64_t>(row), options_.show_candidates, out_);
        out_ << '\n' << std::flush;
      }
    }
  }

  void End(std::span<const ChoiceState> choices, const GenerateTimes& times) override {
    block_.Clear();
    if (is_live_) {
      const std::string text = terminal_.Printable(
          (options_.echoes_prompt ? generation_.prompt().text : "") + choices[0].text);
      out_ << text;
      EndLine(text, out_);
    }
    SayEnd(generation_, choices, times);
  }

 private:
  static constexpr int kTextLines = 5;
  static constexpr int kOtherLines = 8;  // around the candidates, with the shell's own

  void DrawLive(const ChoiceStep& step, const std::string& text) {
    const TerminalSize size = TerminalSize::Detect();
    const int64_t shown =
        std::clamp<int64_t>(size.rows - kTextLines - kOtherLines, 1, options_.show_candidates);
    std::ostringstream lines;
    lines << LastLines(terminal_.Printable(text), size.columns, kTextLines) << '\n';
    PrintTable(step, 0, shown, lines);
    block_.Draw(lines.view());
  }

  void PrintTable(const ChoiceStep& step, int64_t row, int64_t shown, std::ostream& out) const {
    const Generator& generator = generation_.generator();
    const std::vector<Explanation> explained = generation_.ExplainStep(step, row, shown);
    std::string title = "token " + Number(generator.OutputTokens(step.choice).size());
    if (options_.generation.choices > 1) title += " of choice " + Number(step.choice + 1);
    if (step.token.id >= 0) title += ": " + generation_.TokenText(step, step.token.id);
    out << terminal_.Styled(title, Style::kHeading) << '\n';
    PrintCandidates(
        explained, generation_.checkpoint().vocab(),
        [&](int32_t id) { return generation_.TokenText(step, id); }, out, terminal_);
    out << "  " << KeptSentence(explained.front()) << '\n'
        << "  " << CertificateText(step, generator.masses()[static_cast<size_t>(row)]) << '\n';
  }

  // What makes the kept set certain: of the certified head its bounds, of top-p an exact mass.
  static std::string CertificateText(const ChoiceStep& step, const CutMass& mass) {
    std::string text;
    switch (step.certificate.path) {
      case CertifiedPath::kNothing:
        text = "dense head";
        break;
      case CertifiedPath::kPlanes:
      case CertifiedPath::kAllowed:
        text = "certified: " + Number(step.certificate.survivors) +
               " logits computed, the others at least " +
               Fixed(static_cast<double>(step.certificate.margin), 3) + " too low";
        break;
      case CertifiedPath::kDense:
        text = "not certified (" + std::string(Name(step.certificate.reason)) +
               "), so the whole head was read";
        break;
    }
    if (mass.margin == CutMass{}.margin || mass.total == 0) return text;
    const double share = static_cast<double>(mass.margin) / static_cast<double>(mass.total);
    return text + "; " + Fixed(100 * share, share < 0.001 ? 5 : 2) +
           " % of the mass separates top-p from another set";
  }

  const GenerateOptions& options_;
  const Generation& generation_;
  std::ostream& out_;
  const Terminal& terminal_;
  LiveBlock block_;
  bool is_live_;
};

}  // namespace

std::unique_ptr<GenerateView> MakeGenerateView(const GenerateOptions& options,
                                               const Generation& generation, std::ostream& out,
                                               const Terminal& terminal) {
  if (options.as_json || options.as_json_lines) return MakeJsonView(options, generation, out);
  if (options.show_candidates > 0) {
    return std::make_unique<CandidatesView>(options, generation, out, terminal);
  }
  if (options.generation.choices > 1) {
    return std::make_unique<ChoicesView>(options, generation, out, terminal);
  }
  return std::make_unique<StreamView>(options, generation, out, terminal);
}

}  // namespace sluice::cli
