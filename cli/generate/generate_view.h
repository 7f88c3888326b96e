// Ways to show a generation: text as it comes, several choices one after the other, candidates of
// every token, JSON.
#pragma once

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "cli/generate/generate.h"
#include "cli/generate/generate_report.h"
#include "cli/generate/generation.h"

namespace sluice::cli {

// What a choice has come to.
struct ChoiceState {
  std::string text;
  GenerationEnd end = GenerationEnd::kNone;
  Delta delta;
  TokenResult last;  // the token of its last step
};

class GenerateView {
 public:
  virtual ~GenerateView() = default;
  virtual void Begin() {}
  // steps: of one Step or of Cancel, with their text in `choices` already.
  virtual void Show(std::span<const ChoiceStep> steps, std::span<const ChoiceState> choices) = 0;
  // wall_ns: since the first step.
  virtual void End(std::span<const ChoiceState> choices, const GenerateTimes& times) = 0;
};

std::unique_ptr<GenerateView> MakeGenerateView(const GenerateOptions& options,
                                               const Generation& generation, std::ostream& out,
                                               const Terminal& terminal);

}  // namespace sluice::cli
