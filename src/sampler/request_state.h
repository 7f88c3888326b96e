// The sampler's state of one request: its parameters in the form the stages read, its tokens,
// and how often it has seen each of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "semantics/adjust/adjust.h"
#include "sluice/sampler.hpp"

namespace sluice {

// Whether a request's parameters change the logits of its next token.
bool ChangesLogits(const SamplingParams& params, int64_t output_length);

class RequestState {
 public:
  // The request is valid.
  RequestState(const Request& request, int64_t vocab, uint64_t seed);

  const SamplingParams& params() const { return params_; }
  const SelectParams& select() const { return select_; }
  std::span<const LogitsProcessor> processors() const { return processors_; }
  std::span<const int32_t> tokens() const { return tokens_; }
  size_t prompt_length() const { return prompt_length_; }
  size_t output_length() const { return tokens_.size() - prompt_length_; }
  uint64_t seed() const { return seed_; }

  // The key of the next token's noise.
  NoiseKey Key() const { return {seed_, static_cast<uint32_t>(tokens_.size()), choice_}; }

  // What the adjustments of the next token look at.
  semantics::AdjustInput Adjustments(const int32_t* bitmask);

  // Whether a processor of the user's changes the next token's logits.
  bool RunsProcessors() const;

  // Whether the next token's logits are to be changed at all, a bitmask and a forced token aside.
  bool HasAdjustments() const;

  // Room for one token more: an Accept after it does not throw.
  void Grow();
  void Accept(int32_t token);
  void Rollback(size_t count);  // at most output_length()

 private:
  void Count(int32_t token, bool in_prompt);

  SamplingParams params_;
  SelectParams select_;
  std::vector<LogitsProcessor> processors_;
  std::vector<int32_t> allowed_ids_;  // ascending, distinct
  std::vector<BiasEntry> bias_;       // ascending by id, those of one id in their order
  std::vector<int32_t> bad_word_ids_;
  std::vector<int32_t> bad_word_offsets_;
  std::vector<int32_t> tokens_;
  std::vector<int32_t> outgrown_;  // the memory of tokens_ before it grew: drafts may lie there
  std::vector<semantics::TokenCount> counts_;  // of tokens_, ascending by id
  std::vector<uint32_t> dry_workspace_;        // what DRY may look at; empty when it is off
  size_t prompt_length_;
  uint64_t seed_;
  uint32_t choice_;
};

}  // namespace sluice
