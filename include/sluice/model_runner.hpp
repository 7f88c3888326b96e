// Steps of a model on the CPU: forward pass over the rows of all requests, head, sampler.
#pragma once

#include <memory>
#include <optional>

#include "sluice/certified_head.hpp"
#include "sluice/checkpoint.hpp"
#include "sluice/generator.hpp"
#include "sluice/step_runner.hpp"

namespace sluice {

struct ModelRunnerOptions {
  int32_t max_requests = 64;
  int64_t max_step_tokens = 512;
  // Room of the cache for all requests together; 0: a context's worth for each of them, at most 1
  // GiB. Requests that do not fit together take turns.
  int64_t cache_tokens = 0;
  int32_t max_logprobs = 20;
  // Ended requests that stay in the cache while it has room, for requests that begin alike. 0:
  // none.
  int32_t max_prefixes = 1024;
  // Tokens that a step tries ahead for a request at most: those that followed the same tokens
  // earlier in its text. What comes of it are the same tokens in fewer steps. Only steps of few
  // rows do so, for requests without a grammar. At most 15; 0: none.
  int32_t draft_tokens = 0;
  std::optional<HeadPlanes> planes = {};      // of checkpoint.head(); none: the dense head serves
  std::shared_ptr<TopKHead> top_k_head = {};  // of checkpoint.head(), in place of planes
  Limits limits = {};
  Backend backend = Backend::kAuto;
  ParallelFor parallel = {};
};

// Launch computes the step, on the caller's thread. Tokens are those of a Generator with the same
// request, bit for bit, whatever else is in the batch.
//
// Launch throws Error for a plan that does not fit, before anything changes, and takes the next
// one. After any other exception, which a parallel-for threw, it takes none.
class ModelRunner final : public StepRunner {
 public:
  ModelRunner(const Checkpoint& checkpoint, const ModelRunnerOptions& options = {});
  ~ModelRunner() override;

  const RunnerInfo& info() const override;
  void Launch(const StepPlan& plan) override;
  const StepResults& Await() override;

  const GenerationStats& stats() const;  // while no step is being computed

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
