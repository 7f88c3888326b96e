// Times the whole sampling step of a DeviceSampler by graph replay: plain top-k with top-p, each
// feature added alone, and everything at once; the same draw without a step, and one read of
// the rows as the floor. Usage: sluice_cuda_step --help. Hot, as in decoding: see graph_timer.cuh.
//
// Requests have 256 tokens of prompt and 256 of output, of the likely ones of the vocabulary. What
// runs during the model is not in a step's time: accept_ns, of the tokens of the step before, and
// prepare_ns, what needs no logits. host_ns: of a call of Step, with nothing that waits for the
// device.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/support/program_flags.h"
#include "bench/support/rows.h"
#include "sampler/device/device_sampler_impl.h"
#include "semantics/draw/philox.h"

namespace sluice::bench {
namespace {

struct Task {
  const char* name;
  bool has_bitmask;
  void (*add)(SamplingParams& params);
};

constexpr int32_t kListed = 20;

void AddPenalties(SamplingParams& params) {
  params.repetition_penalty = 1.1f;
  params.frequency_penalty = 0.2f;
  params.presence_penalty = 0.1f;
}
void AddDry(SamplingParams& params) {
  params.dry_multiplier = 0.8f;
  params.dry_sequence_breakers = {13, 198, 25};
}
void AddBias(SamplingParams& params) {
  for (int32_t i = 0; i < 16; ++i) params.logit_bias.push_back({1000 * i + 7, 0.5f});
}
void AddBadWords(SamplingParams& params) {
  for (int32_t i = 0; i < 8; ++i) params.bad_words.push_back({50 + i, 90 + i});
}
void AddMinTokens(SamplingParams& params) {
  params.min_tokens = 1000;
  params.stop_token_ids = {2, 128001, 128009};
}

const Task kTasks[] = {
    {"step-k50-p0.9", false, [](SamplingParams&) {}},
    {"step-bitmask", true, [](SamplingParams&) {}},
    {"step-bias", false, AddBias},
    {"step-bad-words", false, AddBadWords},
    {"step-min-tokens", false, AddMinTokens},
    {"step-penalties", false, AddPenalties},
    {"step-dry", false, AddDry},
    {"step-min-p", false, [](SamplingParams& p) { p.min_p = 0.02f; }},
    {"step-typical", false, [](SamplingParams& p) { p.typical_p = 0.95f; }},
    // The mass of the rows' outliers: what is listed leaves a token in doubt.
    {"step-typical-0.9", false, [](SamplingParams& p) { p.typical_p = 0.9f; }},
    {"step-xtc", false, [](SamplingParams& p) { p.xtc_probability = 0.5f; }},
    {"step-logprob", false, [](SamplingParams& p) { p.logprobs = 0; }},
    {"step-logprobs-20", false, [](SamplingParams& p) { p.logprobs = kListed; }},
    {"step-all-adjustments", true,
     [](SamplingParams& p) {
       AddPenalties(p);
       AddDry(p);
       AddBias(p);
       AddBadWords(p);
       AddMinTokens(p);
     }},
    {"step-greedy", false, [](SamplingParams& p) { p = {.temperature = 0.0f}; }},
};

class StepBench {
 public:
  StepBench(int64_t vocab, int64_t rows)
      : vocab_(vocab),
        rows_(rows),
        bytes_(static_cast<size_t>(rows * vocab) * 4),
        master_(bytes_),
        logits_(bytes_),
        largest_(static_cast<size_t>(rows)),
        timer_(master_.data(), logits_.data(), bytes_, rows >= 128 ? 8 : 20) {
    constexpr int64_t kDistinct = 32;  // rows beyond are copies
    std::vector<std::vector<float>> distinct;
    for (int64_t r = 0; r < std::min(rows, kDistinct); ++r) {
      distinct.push_back(MakeRow(Distribution::kMid, vocab, static_cast<uint32_t>(r)));
    }
    for (int64_t r = 0; r < rows; ++r) {
      const std::vector<float>& row = distinct[static_cast<size_t>(r % kDistinct)];
      for (std::byte* to : {master_.data(), logits_.data()}) {
        RequireCuda(cudaMemcpy(to + static_cast<size_t>(r * vocab) * 4, row.data(), row.size() * 4,
                               cudaMemcpyHostToDevice));
      }
    }
  }

  double ReadFloor() {
    double best = 1e30;
    for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
      best = std::min(best, timer_.Microseconds([=, this](cudaStream_t stream) {
        ReadKernel<<<dim3(blocks, static_cast<unsigned>(rows_)), 1024, 0, stream>>>(
            reinterpret_cast<const uint4*>(logits_.data()), static_cast<size_t>(vocab_) / 4,
            largest_.data());
      }));
    }
    return best;
  }

  double PlainSample() {
    const DeviceMemory<SelectParams> params(std::vector<SelectParams>(
        static_cast<size_t>(rows_), SelectParams{.top_k = 50, .top_p = 0.9f}));
    std::vector<NoiseKey> host_keys;
    for (int64_t r = 0; r < rows_; ++r) host_keys.push_back({7, static_cast<uint32_t>(r)});
    const DeviceMemory<NoiseKey> keys(host_keys);
    const DeviceMemory<int32_t> ids(static_cast<size_t>(rows_));
    const DeviceMemory<RowStatus> statuses(static_cast<size_t>(rows_));
    return timer_.Microseconds([&](cudaStream_t stream) {
      cuda::SampleIds(View(), {{params.data(), rows_}, {keys.data(), rows_}}, DrawMethod::kGumbel,
                      {ids.data(), rows_}, {statuses.data(), rows_}, stream);
    });
  }

  struct StepTimes {
    double step_us;
    double accept_us;
    double prepare_us;
    double host_us;
    int64_t memory;
    int64_t waits;
  };

  StepTimes Step(const Task& task) {
    const cuda::DeviceSamplerOptions options{.vocab = vocab_,
                                             .max_requests = static_cast<int32_t>(rows_),
                                             .max_tokens = 4096,
                                             .max_logprobs = kListed};
    const DeviceMemory<std::byte> memory(cuda::DeviceSamplerBytes(options));
    cuda::DeviceSampler sampler(options, {memory.data(), memory.size()});
    const std::vector<int32_t> bitmask(static_cast<size_t>((vocab_ + 31) / 32), 0x7fffffff);
    std::vector<StepRequest> requests;
    SamplingParams params;
    for (int64_t r = 0; r < rows_; ++r) {
      params = {};
      params.top_k = 50;
      params.top_p = 0.9f;
      params.seed = static_cast<uint64_t>(r);
      task.add(params);
      const RequestHandle handle = sampler.Add({.params = params, .prompt = Tokens(r, 0)});
      sampler.Accept(handle, Tokens(r, 1));
      requests.push_back({.request = handle});
      if (task.has_bitmask) requests.back().bitmask = bitmask;
    }
    sampler.Step({View(), requests}, nullptr).Get();
    RequireCuda(cudaDeviceSynchronize());
    const cuda::DeviceBuffers buffers = cuda::BuffersOf(memory.data(), options);
    const bool is_greedy = params.temperature == 0.0f;
    const bool has_logprobs = params.logprobs.has_value();
    cuda::StepShape shape;
    shape.logits = View();
    shape.output = {rows_, rows_, has_logprobs, false,
                    has_logprobs && *params.logprobs > 0 ? 1 + kListed : 0};
    shape.has_values = params.min_tokens > 0 || !params.bad_words.empty() ||
                       !params.logit_bias.empty() || params.dry_multiplier != 0.0f ||
                       params.repetition_penalty != 1.0f;
    shape.has_patches = shape.has_values || task.has_bitmask;
    shape.is_greedy = is_greedy;
    shape.draws_gumbel = true;
    shape.has_typical = params.typical_p < 1.0f;
    shape.has_wide = shape.has_typical;
    shape.modes = has_logprobs ? 1 : 0;
    StepTimes times;
    times.step_us = timer_.Microseconds(
        [&](cudaStream_t stream) { cuda::EnqueueStep(buffers, shape, {}, stream); });
    times.prepare_us = timer_.Microseconds(
        [&](cudaStream_t stream) { cuda::PrepareStep(buffers, shape, stream); });
    times.accept_us = timer_.Microseconds([&](cudaStream_t stream) {
      cuda::LaunchAccept({.store = buffers.store,
                          .spans = cuda::TablesOf(buffers.tables, shape).spans,
                          .ids = cuda::OutputsOf(buffers.outputs, shape.output).ids},
                         rows_, stream);
    });
    constexpr int kCalls = 200;
    std::chrono::duration<double, std::micro> spent{};
    std::vector<cuda::StepHandle> steps;
    for (int i = 0; i < kCalls; ++i) {
      if (i >= 2) steps[static_cast<size_t>(i - 2)].Get();  // the host runs ahead by two steps
      const auto start = std::chrono::steady_clock::now();
      steps.push_back(sampler.Step({View(), requests}, nullptr));
      spent += std::chrono::steady_clock::now() - start;
    }
    times.host_us = spent.count() / kCalls;
    steps.back().Get();
    times.memory = memory.size();
    times.waits = sampler.Waits();
    return times;
  }

 private:
  LogitsView View() const {
    return {logits_.data(), rows_, vocab_, vocab_, DType::kF32, {DeviceKind::kCuda, 0}};
  }
  // 256 tokens, small ids more often than large ones.
  std::vector<int32_t> Tokens(int64_t row, uint32_t part) const {
    std::vector<int32_t> tokens;
    for (uint32_t i = 0; i < 64; ++i) {
      const semantics::Block block = semantics::Philox(9, static_cast<uint32_t>(row), part, i, 0);
      for (const uint32_t word : block.word) {
        const double u = static_cast<double>(word) * 0x1p-32;
        tokens.push_back(static_cast<int32_t>(static_cast<double>(vocab_) * u * u * u));
      }
    }
    return tokens;
  }

  int64_t vocab_;
  int64_t rows_;
  size_t bytes_;
  DeviceMemory<std::byte> master_;
  DeviceMemory<std::byte> logits_;
  DeviceMemory<uint32_t> largest_;
  GraphTimer timer_;
};

struct Options {
  int64_t vocab = 128256;
  std::vector<int64_t> batches = {1, 8, 32, 128, 256};
  std::vector<std::string> tasks;

  explicit Options(ProgramFlags& flags) {
    flags.Number("--vocab", vocab, {64, kMaxVocab}, "tokens of a row");
    flags.Number("--batch", batches, {1, 65535}, "requests of a step");
    flags.Names("--task", tasks, NamesOf(kTasks), "only these");
  }
};

void Run(const Options& options) {
  const int64_t vocab = options.vocab;
  DeviceReport report(ThisGpu());
  for (const int64_t rows : options.batches) {
    StepBench bench(vocab, rows);
    const double floor = bench.ReadFloor();
    const double plain = bench.PlainSample();
    std::fprintf(stderr, "B=%lld floor %.2f us, plain sample %.2f us\n",
                 static_cast<long long>(rows), floor, plain);
    for (const Task& task : kTasks) {
      if (!IsSelected(options.tasks, task.name)) continue;
      const StepBench::StepTimes times = bench.Step(task);
      report.Row(
          "{\"bench\": \"cuda-step\", \"task\": \"%s\", \"backend\": \"cuda\", \"dtype\": "
          "\"float32\", \"vocab\": %lld, \"batch\": %lld, \"distribution\": \"mid\", \"ns\": %.0f, "
          "\"floor_ns\": %.0f, \"plain_ns\": %.0f, \"accept_ns\": %.0f, \"prepare_ns\": %.0f, "
          "\"host_ns\": %.0f, "
          "\"waits\": %lld, \"memory_bytes\": %lld}",
          task.name, static_cast<long long>(vocab), static_cast<long long>(rows),
          times.step_us * 1e3, floor * 1e3, plain * 1e3, times.accept_us * 1e3,
          times.prepare_us * 1e3, times.host_us * 1e3, static_cast<long long>(times.waits),
          static_cast<long long>(times.memory));
      std::fprintf(stderr,
                   "%-22s B=%-4lld %8.2f us  plain x %.2f  +%.2f us  accept %6.2f  prepare %6.2f  "
                   "host %6.2f  "
                   "waits %lld\n",
                   task.name, static_cast<long long>(rows), times.step_us, times.step_us / plain,
                   times.step_us - plain, times.accept_us, times.prepare_us, times.host_us,
                   static_cast<long long>(times.waits));
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(argc, argv, "sluice_cuda_step",
                                   "Times whole sampling steps of a DeviceSampler.",
                                   sluice::bench::Run);
}
