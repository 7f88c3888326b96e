#include "bench/stages/pipeline_bench.h"

#include <algorithm>
#include <utility>

#include "bench/stages/algorithms_bench.h"
#include "bench/support/floor.h"
#include "bench/support/rows.h"
#include "support/thread_pool.h"

namespace sluice::bench {
namespace {

std::vector<StepKind> MakeStepKinds() {
  std::vector<StepKind> kinds(7);
  kinds[0] = {"greedy", "T=0", {}};
  kinds[0].params.temperature = 0.0f;
  kinds[1] = {"top-k, top-p", "T=0.8, k=50, p=0.9", {}};
  kinds[1].params.temperature = 0.8f;
  kinds[1].params.top_k = 50;
  kinds[1].params.top_p = 0.9f;
  kinds[2] = {"top-p", "T=0.7, p=0.95", {}};
  kinds[2].params.temperature = 0.7f;
  kinds[2].params.top_p = 0.95f;
  kinds[3] = {"min-p", "T=1, min-p=0.05", {}};
  kinds[3].params.min_p = 0.05f;
  kinds[4] = {"penalties", "k=40, p=0.95, repetition, frequency and presence", {}};
  kinds[4].params.top_k = 40;
  kinds[4].params.top_p = 0.95f;
  kinds[4].params.repetition_penalty = 1.1f;
  kinds[4].params.frequency_penalty = 0.2f;
  kinds[4].params.presence_penalty = 0.2f;
  kinds[5] = {"masks", "p=0.9, bad words, bias, min tokens", {}};
  kinds[5].params.top_p = 0.9f;
  kinds[5].params.bad_words = {{7}, {11, 13}};
  kinds[5].params.logit_bias = {{17, 2.0f}, {19, -100.0f}};
  kinds[5].params.stop_token_ids = {2};
  kinds[5].params.min_tokens = 16;
  kinds[6] = {"whole vocabulary", "T=1", {}};
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].params.seed = 2024 + i;
  return kinds;
}

// A sampler with a batch of requests that takes the same step again and again.
class Stepper {
 public:
  // kind: of all requests; -1 is all in turns.
  Stepper(const PipelineOptions& options, Backend backend, const ParallelFor& parallel,
          int64_t batch, int kind)
      : sampler_({.vocab = options.vocab,
                  .max_requests = static_cast<int32_t>(batch),
                  .backend = backend,
                  .parallel = parallel}),
        tokens_(static_cast<size_t>(batch)),
        emitted_(static_cast<size_t>(batch)) {
    const std::vector<StepKind>& kinds = StepKinds();
    std::vector<int32_t> prompt(static_cast<size_t>(options.prompt_length));
    for (size_t i = 0; i < prompt.size(); ++i) {
      prompt[i] = static_cast<int32_t>(static_cast<int64_t>(i * i * 31) % options.vocab);
    }
    for (int64_t r = 0; r < batch; ++r) {
      const size_t index =
          kind < 0 ? static_cast<size_t>(r) % kinds.size() : static_cast<size_t>(kind);
      const RequestHandle handle = sampler_.Add({.params = kinds[index].params, .prompt = prompt});
      requests_.push_back({.request = handle});
    }
  }

  void Step(const LogitsView& logits) {
    sampler_.Step({logits, requests_}, {.tokens = tokens_, .emitted = emitted_});
  }
  void RollBack() {
    for (size_t r = 0; r < requests_.size(); ++r) {
      sampler_.Rollback(requests_[r].request, emitted_[r]);
    }
  }

 private:
  Sampler sampler_;
  std::vector<StepRequest> requests_;
  std::vector<TokenResult> tokens_;
  std::vector<int32_t> emitted_;
};

// Steps over the logits a batch at a time, from the start again after the last row.
Timing TimeSteps(Stepper& stepper, const LogitsView& logits, int64_t batch,
                 const PipelineOptions& options) {
  LogitsView view = logits;
  view.rows = batch;
  const auto read = [&] {
    for (int64_t row = 0; row < batch; ++row) {
      Consume(RowMax(view.Row(row), view.dtype, view.vocab));
    }
  };
  const auto step = [&](int64_t index, Samples& samples) {
    view.data = logits.Row(index * batch % logits.rows);
    read();
    read();
    samples.floors.push_back(TimeOf(read));
    read();
    samples.times.push_back(TimeOf([&] { stepper.Step(view); }));
    samples.used += samples.times.back();
    stepper.RollBack();
  };
  Samples unused;  // the first step finds code and memory cold
  step(0, unused);
  Samples samples;
  for (int64_t index = 0; index < options.steps; ++index) {
    if (samples.used > options.budget_ms * 1e6 && index >= 3) break;
    step(index, samples);
  }
  return Summary(std::move(samples));
}

}  // namespace

const std::vector<StepKind>& StepKinds() {
  static const std::vector<StepKind> kinds = MakeStepKinds();
  return kinds;
}

void RunPipelineBench(const PipelineOptions& options,
                      const std::function<void(const StepTiming&)>& on_timing,
                      const std::function<void(const std::string&)>& on_progress) {
  on_progress("making rows");
  const int64_t most = options.batches.back();
  std::vector<float> rows;
  for (int64_t row = 0; row < most; ++row) {
    const auto values = MakeRow(MixedKind(row), options.vocab, static_cast<uint32_t>(row));
    rows.insert(rows.end(), values.begin(), values.end());
  }
  const LogitsView logits{rows.data(), most, options.vocab, options.vocab, DType::kF32, {}};
  ThreadPool pool(options.threads);
  for (const Backend backend : options.backends) {
    const auto measure = [&](std::string_view name, int kind, int64_t batch) {
      on_progress(std::string(name) + ", batch " + std::to_string(batch));
      Stepper stepper(options, backend, pool.parallel(), batch, kind);
      on_timing({name, backend, batch, TimeSteps(stepper, logits, batch, options)});
    };
    for (size_t kind = 0; kind < StepKinds().size(); ++kind) {
      measure(StepKinds()[kind].name, static_cast<int>(kind), 1);
    }
    for (const int64_t batch : options.batches) measure(kMixedStep, -1, batch);
  }
}

}  // namespace sluice::bench
