// What the options of a ModelRunner mean for its parts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "engine/runner/draft_stage.h"
#include "engine/runner/head_stage.h"
#include "sluice/decoder.hpp"
#include "sluice/model_runner.hpp"
#include "support/check.h"

namespace sluice::engine {

inline constexpr size_t kUsualCacheBytes = size_t{1} << 30;

inline int64_t PagesFor(int64_t tokens) {
  return (tokens + Decoder::kPageTokens - 1) / Decoder::kPageTokens;
}

// Before anything is allocated.
inline const ModelRunnerOptions& Checked(const ModelRunnerOptions& options) {
  CheckInRange("max_requests", options.max_requests, 1, 1 << 20);
  CheckInRange("max_step_tokens", options.max_step_tokens, 1, 1 << 20);
  CheckInRange("max_logprobs", options.max_logprobs, -1, kMaxVocab);
  CheckInRange("max_prefixes", options.max_prefixes, 0, (1 << 20) - options.max_requests);
  CheckInRange("draft_tokens", options.draft_tokens, 0, DraftStage::kMostRows - 1);
  return options;
}

// Drafts may take a page more than the engine has counted, until its next plan counts those that
// were right.
inline int64_t DraftPages(const ModelRunnerOptions& options) {
  static_assert(DraftStage::kMostRows <= Decoder::kPageTokens);
  return options.draft_tokens > 0 ? options.max_requests : 0;
}

// Inputs of a step beyond those that the engine counts.
inline int64_t DraftInputs(const ModelRunnerOptions& options) {
  return options.draft_tokens > 0 ? DraftStage::kMostRows : 0;
}

inline DecoderOptions OptionsOfDecoder(const Model& model, const ModelRunnerOptions& options) {
  DecoderOptions decoder{.max_sequences = options.max_requests + options.max_prefixes,
                         .cache_tokens = options.cache_tokens,
                         .max_batch_tokens = options.max_step_tokens + DraftInputs(options),
                         .backend = options.backend,
                         .parallel = options.parallel};
  if (decoder.cache_tokens != 0) {
    decoder.cache_tokens += DraftPages(options) * Decoder::kPageTokens;
    return decoder;
  }
  // The bytes that one more page costs a cache that has room for a context.
  const int64_t context_pages = PagesFor(model.info().context);
  decoder.cache_tokens = context_pages * Decoder::kPageTokens;
  const size_t bytes = Decoder::Bytes(model, decoder);
  decoder.cache_tokens += Decoder::kPageTokens;
  const size_t page_bytes = Decoder::Bytes(model, decoder) - bytes;
  const auto usual = static_cast<int64_t>(kUsualCacheBytes / page_bytes);
  const int64_t pages = std::min(options.max_requests * context_pages, usual);
  decoder.cache_tokens = (std::max<int64_t>(pages, 1) + DraftPages(options)) * Decoder::kPageTokens;
  return decoder;
}

inline int32_t WidestLists(const Checkpoint& checkpoint, int32_t max_logprobs) {
  const auto vocab = static_cast<int32_t>(checkpoint.vocab());
  return 1 + (max_logprobs < 0 ? vocab : std::min(max_logprobs, vocab));
}

inline HeadStageOptions OptionsOfHead(const Checkpoint& checkpoint,
                                      const ModelRunnerOptions& options) {
  return {.head = checkpoint.head(),
          .planes = options.planes,
          .top_k_head = options.top_k_head,
          .logit_softcap = checkpoint.model().info().logit_softcap,
          .max_rows = options.max_requests,
          .logprob_width = WidestLists(checkpoint, options.max_logprobs),
          .scores = true,
          .verified_rows = DraftInputs(options),
          .limits = options.limits,
          .backend = options.backend,
          .parallel = options.parallel};
}

inline RunnerInfo InfoOf(const Checkpoint& checkpoint, const ModelRunnerOptions& options,
                         const Decoder& decoder) {
  return {.vocab = checkpoint.vocab(),
          .context = checkpoint.model().info().context,
          .max_requests = options.max_requests,
          .max_step_tokens = options.max_step_tokens,
          .page_tokens = Decoder::kPageTokens,
          .pages = decoder.FreePages() - DraftPages(options),
          .max_given_tokens = 1 + options.draft_tokens,
          .max_logprobs = options.max_logprobs,
          .max_prefixes = options.max_prefixes,
          .limits = options.limits};
}

}  // namespace sluice::engine
