// From a prompt to text, token by token, with the built-in model.
#include <cstdio>
#include <vector>

#include "sluice/default_model.hpp"
#include "sluice/generator.hpp"

int main() {
  // [generate]
  const auto checkpoint = sluice::Checkpoint::FromFiles(sluice::DefaultModelFiles());
  const std::vector<int32_t> prompt = checkpoint.tokenizer().Encode("Once upon a time");

  sluice::GenerationRequest request{.prompt = prompt, .choices = 2, .max_tokens = 40};
  request.params.temperature = 0.8f;
  request.params.top_k = 50;
  request.params.seed = 7;

  sluice::Generator generator(checkpoint, request);
  while (generator.live_choices() > 0) {
    for (const sluice::ChoiceStep& step : generator.Step()) {
      if (step.choice == 0) std::fwrite(step.text.data(), 1, step.text.size(), stdout);
    }
  }
  // [generate]
  std::puts("");
  return generator.stats().output_tokens > 0 ? 0 : 1;
}
