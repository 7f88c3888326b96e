// One prompt on its way through a model: loading, the prompt, and the generator with what its
// readers show.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/generate/cluster_head.h"
#include "cli/generate/generation_flags.h"
#include "cli/generate/prompt.h"
#include "cli/interrupt.h"
#include "cli/progress_line.h"
#include "sluice/explain.hpp"
#include "sluice/generator.hpp"
#include "support/thread_pool.h"

namespace sluice::cli {

// The budget of the options after this prompt, with the markers of the model.
std::optional<ThinkingBudget> ThinkingOf(const GenerationOptions& options, const ModelText& text,
                                         std::span<const int32_t> prompt);

class Generation {
 public:
  // Loads the model and builds the head; the prompt has not been computed. Throws Error for a
  // prompt that the model has no room for.
  Generation(const GenerationOptions& options, const GenerationReports& reports);

  // The prompt through the model. Throws Interrupted when a signal came.
  void Prefill(const InterruptGuard& interrupt);

  const GenerationOptions& options() const { return options_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  Generator& generator() { return *generator_; }
  const Generator& generator() const { return *generator_; }
  const Prompt& prompt() const { return prompt_; }
  const std::optional<ThinkingBudget>& thinking() const { return thinking_; }
  int threads() const { return threads_; }
  HeadChoice head() const { return head_; }                        // not kAuto
  const ClusterHeadReport& clusters() const { return clusters_; }  // of kClusters
  std::string_view backend_name() const;
  int64_t load_ns() const { return load_ns_; }

  // The `count` likeliest tokens of row `row` of the last step, and the drawn one if it is not
  // among them; needs GenerationReports::logits. Throws, for main to report, when the step did not
  // give what the definition gives.
  std::vector<Explanation> ExplainStep(const ChoiceStep& step, int64_t row, int64_t count) const;
  // A token's text in the place of the step's, quoted.
  std::string TokenText(const ChoiceStep& step, int32_t id) const;

 private:
  std::vector<int32_t> TokensBefore(const ChoiceStep& step) const;

  GenerationOptions options_;
  Prompt prompt_;  // its text is read first: what is wrong with it is known without the model
  std::chrono::steady_clock::time_point start_;
  ProgressLine progress_;
  int threads_;
  ThreadPool pool_;
  Checkpoint checkpoint_;
  HeadChoice head_ = HeadChoice::kDense;
  std::optional<ThinkingBudget> thinking_;
  ClusterHeadReport clusters_;
  int64_t load_ns_ = 0;
  std::unique_ptr<Generator> generator_;
};

}  // namespace sluice::cli
