// The checkpoints of tests/model/fixtures with what transformers computes of them, and the calls
// from tokens to logits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "sluice/decoder.hpp"
#include "sluice/head.hpp"
#include "sluice/model.hpp"
#include "tests/model/checkpoint.h"
#include "tests/support/run.h"

namespace sluice::test {

// A list, because a folder that is missing would not be noticed.
inline constexpr const char* kFixtures[] = {
    "llama2",     "llama3", "llama3_sharded", "llama_biases", "llama_linear", "mistral", "qwen2",
    "qwen2_yarn", "qwen3",  "smollm2",        "gemma2",       "gemma3_text",  "gemma3"};

inline std::string FixtureFolder(const std::string& name) {
  return std::string(SLUICE_MODEL_FIXTURES) + "/" + name;
}

// See make_models.py.
struct Expected {
  std::vector<int32_t> prompt;
  std::vector<int32_t> greedy;
  std::vector<int32_t> positions;
  std::vector<float> logits;  // [positions, vocab]

  std::vector<int32_t> Tokens() const {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    return tokens;
  }
};

inline Expected ExpectedOf(const std::string& name) {
  Expected expected;
  for (const StoredTensor& tensor :
       ParseSafetensors(ReadBytes(FixtureFolder(name) + "/expected.safetensors"))) {
    if (tensor.name == "prompt") expected.prompt = tensor.Values<int32_t>();
    if (tensor.name == "greedy") expected.greedy = tensor.Values<int32_t>();
    if (tensor.name == "positions") expected.positions = tensor.Values<int32_t>();
    if (tensor.name == "logits") expected.logits = tensor.Values<float>();
  }
  return expected;
}

inline Model OpenFixture(const std::string& name, WeightFormat weights = WeightFormat::kAsStored) {
  return Model::Open(FixtureFolder(name), {.weights = weights});
}

// The hidden states of all these tokens, which the sequence takes in chunks of at most that size.
inline std::vector<float> Forwarded(Decoder& decoder, SequenceHandle sequence,
                                    std::span<const int32_t> tokens, size_t chunk_size) {
  const size_t dim = static_cast<size_t>(decoder.model().info().dim);
  std::vector<float> hidden(tokens.size() * dim);
  for (size_t at = 0; at < tokens.size(); at += chunk_size) {
    const size_t size = std::min(chunk_size, tokens.size() - at);
    const DecodeChunk chunk{sequence, tokens.subspan(at, size), static_cast<int64_t>(size)};
    decoder.Forward({&chunk, 1}, std::span(hidden).subspan(at * dim, size * dim));
  }
  return hidden;
}

// Every fixture's tokens, and the context of most of them.
inline constexpr int64_t kFixtureTokens = 256;

// The same on a decoder of its own.
inline std::vector<float> HiddenStates(const Model& model, std::span<const int32_t> tokens,
                                       Backend backend = Backend::kRef,
                                       size_t chunk_size = kFixtureTokens,
                                       const ParallelFor& parallel = {}) {
  Decoder decoder(model,
                  {.cache_tokens = kFixtureTokens, .backend = backend, .parallel = parallel});
  return Forwarded(decoder, decoder.Add(), tokens, chunk_size);
}

// The logits that a sampler sees, [rows, vocab].
inline std::vector<float> LogitsOf(const Model& model, std::span<const float> hidden,
                                   Backend backend) {
  const int64_t dim = model.info().dim;
  const int64_t vocab = model.info().vocab;
  const int64_t rows = static_cast<int64_t>(hidden.size()) / dim;
  std::vector<float> logits(static_cast<size_t>(rows * vocab));
  const MatrixView in{hidden.data(), rows, dim, dim, DType::kF32, {}};
  const MutableLogitsView out{logits.data(), rows, vocab, vocab, DType::kF32, {}};
  Execution execution{.backend = backend};
  const Workspace workspace(ProjectWorkspaceBytes(model.head(), in, execution));
  execution.workspace = workspace.span();
  Project(model.head(), in, {}, out, execution);
  CapLogits(model.info().logit_softcap, out, execution);
  return logits;
}

// The likeliest token behind the prompt, and behind that, token by token as a model is used.
inline std::vector<int32_t> GreedyContinuation(Decoder& decoder, std::span<const int32_t> prompt,
                                               size_t count, Backend backend) {
  const SequenceHandle sequence = decoder.Add();
  std::vector<float> hidden(static_cast<size_t>(decoder.model().info().dim));
  std::vector<int32_t> continuation;
  while (continuation.size() < count) {
    const DecodeChunk chunk{sequence,
                            continuation.empty() ? prompt : std::span(continuation).last(1)};
    decoder.Forward({&chunk, 1}, hidden);
    const std::vector<float> logits = LogitsOf(decoder.model(), hidden, backend);
    continuation.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return continuation;
}

}  // namespace sluice::test
