// From one row of logits to a token: what an engine does after each forward pass.
#include <cstdio>
#include <vector>

#include "sluice/sluice.hpp"

int main() {
  const std::vector<float> logits = {1.5f, 0.25f, 3.0f, 2.75f, -1.0f, 2.5f};
  const int64_t vocab = static_cast<int64_t>(logits.size());

  // [sample]
  sluice::Sampler sampler({.vocab = vocab});

  sluice::SamplingParams params{.temperature = 0.8f, .top_k = 4, .top_p = 0.9f};
  params.repetition_penalty = 1.1f;
  params.seed = 42;
  const std::vector<int32_t> prompt = {2, 0};
  const auto request = sampler.Add({.params = params, .prompt = prompt});

  const sluice::StepRequest row{.request = request};
  sluice::TokenResult token;
  int32_t emitted = 0;
  sampler.Step({.logits = {logits.data(), 1, vocab, vocab}, .requests = {&row, 1}},
               {.tokens = {&token, 1}, .emitted = {&emitted, 1}});
  std::printf("token %d, drawn from %d candidates\n", token.id, token.cut.count);
  // [sample]

  return emitted == 1 && sampler.Tokens(request).back() == token.id ? 0 : 1;
}
