// Times heads on a GPU by graph replay, from hidden states to tokens, and the floors of one read
// of the weights and of the planes, and the library's product of the same matrices. Usage:
// sluice_cuda_head --help.
//
// Of strict planes a call by the first plane alone takes turns with one by both, and so do calls
// that compute up to --few tokens at once, without a look into the second plane.
//
// A call's time is what 32 more of them add to a graph; the median of nine replays. Calls take
// turns at 64 hidden states. The heads are larger than L2 or nearly so, and a call leaves little of
// them there for the next one.
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/cublas_product.cuh"
#include "bench/cuda/energy_meter.h"
#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/replay_timer.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/head/heads.h"
#include "bench/support/program_flags.h"
#include "head/certified/cuda/certified_kernels.h"
#include "sampler/certified/sample_survivors.h"
#include "sluice/cuda/certified_sample.hpp"
#include "support/thread_pool.h"

namespace sluice::bench {
namespace {

constexpr int64_t kStates = 64;

struct Task {
  const char* name;
  SelectParams params;
};
constexpr Task kTasks[] = {
    {"greedy", {.temperature = 0.0f}},
    {"k50-p0.9", {.top_k = 50, .top_p = 0.9f}},
    {"softmax", {}},
    {"p0.9", {.top_p = 0.9f}},
};

struct Result {
  double us = 0.0;
  double encode_us = 0.0;  // through the encoding, the scores, the logits of the survivors
  double score_us = 0.0;
  double logits_us = 0.0;
  double energy_uj = -1.0;  // of a call; negative: not measured
  int64_t wrong = 0;        // tokens that are not those of the dense head
  int64_t dense = 0;        // rows of all calls
  double survivors = 0.0;
  double refined = 0.0;  // rows of the second plane that were read
  double bytes = 0.0;    // of a call, of one read of the weights
  // Of strict planes by the first alone; negative: not measured.
  double first_plane_us = -1.0;
  int64_t first_plane_dense = 0;
  std::vector<double> few_us = {};
};

class HeadBench {
 public:
  // energy_seconds: that a call is repeated for its energy; 0: not at all. few: of --few.
  HeadBench(int64_t vocab, int64_t dim, CertificateKind kind, double energy_seconds,
            std::vector<int32_t> few, const ParallelFor& parallel)
      : energy_seconds_(energy_seconds),
        few_(std::move(few)),
        made_(vocab, dim, kStates),
        weights_(static_cast<size_t>(vocab * dim)),
        hidden_(static_cast<size_t>(2 * kStates * dim)),
        planes_(HeadPlanes::Build(made_.weight(), {.kind = kind, .seed = 7}, parallel)),
        plane_memory_(cuda::DevicePlaneBytes(planes_)) {
    RequireCuda(cudaMemcpy(weights_.data(), made_.weight().data, weights_.size() * 2,
                           cudaMemcpyHostToDevice));
    RequireCuda(cudaMemcpy(hidden_.data(), made_.hidden(0, 2 * kStates).data, hidden_.size() * 2,
                           cudaMemcpyHostToDevice));
    head_.weight = made_.weight();
    head_.weight.data = weights_.data();
    head_.weight.device = {DeviceKind::kCuda, 0};
    device_planes_ =
        cuda::UploadPlanes(planes_, {plane_memory_.data(), plane_memory_.size()}, nullptr);
  }

  int64_t vocab() const { return head_.weight.rows; }
  int64_t dim() const { return head_.weight.columns; }

  double Read(const void* data, size_t bytes) const {
    const DeviceMemory<uint32_t> largest(1);
    return timer_.Microseconds([&](int, cudaStream_t stream) {
      ReadKernel<<<dim3(132 * 4, 1), 512, 0, stream>>>(static_cast<const uint4*>(data), bytes / 16,
                                                       largest.data());
    });
  }
  double ReadWeights() const { return Read(weights_.data(), weights_.size() * 2); }
  double ReadPlanes() const { return Read(plane_memory_.data(), plane_memory_.size()); }

  Result Dense(int64_t batch) const {
    const DeviceMemory<float> logits(static_cast<size_t>(batch * vocab()));
    auto call = [&](int i, cudaStream_t stream) {
      cuda::Project(head_, Hidden(i, batch), Logits(logits, batch), stream);
    };
    return {.us = timer_.Microseconds(call), .energy_uj = Energy(call)};
  }

  // Negative: the library is missing.
  Result Library(int64_t batch) const {
    CublasProduct product;
    if (!product.is_there()) return {.us = -1.0};
    const DeviceMemory<uint16_t> logits(static_cast<size_t>(batch * vocab()));
    double best = 1e30;
    int best_way = -1;
    bool is_done = true;
    auto call_of = [&](int way) {
      return [&, way](int i, cudaStream_t stream) {
        is_done &=
            product.Multiply(way, weights_.data(), Hidden(i, batch).data, logits.data(), stream);
      };
    };
    const int ways = product.Plan(vocab(), dim(), batch);
    for (int way = 0; way < ways; ++way) {
      is_done = true;
      const double us = timer_.Microseconds(call_of(way));
      if (!is_done || us >= best) continue;
      best = us;
      best_way = way;
    }
    if (best_way < 0) return {.us = -1.0};
    return {.us = best, .energy_uj = Energy(call_of(best_way))};
  }

  Result Certified(const Task& task, int64_t batch) const {
    const auto rows = static_cast<size_t>(batch);
    const size_t bytes = cuda::CertifiedWorkspaceBytes(device_planes_, batch);
    const DeviceMemory<std::byte> workspace(bytes);
    const DeviceMemory<cuda::HeadRow> how(rows);
    const DeviceMemory<int32_t> refined(rows);
    const DeviceMemory<int32_t> ids(rows);
    const DeviceMemory<int32_t> dense_ids(rows);
    const DeviceMemory<float> logits(static_cast<size_t>(batch * vocab()));
    const DeviceMemory<SelectParams> params(std::vector<SelectParams>{task.params});
    std::vector<NoiseKey> some_keys;
    for (uint32_t r = 0; r < 2 * kStates; ++r) some_keys.push_back({17, r});
    const DeviceMemory<NoiseKey> keys(some_keys);
    auto params_of = [&](int i) {
      return cuda::RowParams{{params.data(), 1}, {keys.data() + i * batch % kStates, batch}};
    };
    auto call_of = [&](int i) {
      return cuda::CertifiedCall{.head = head_,
                                 .planes = device_planes_,
                                 .hidden = Hidden(i, batch),
                                 .workspace = {workspace.data(), workspace.size()},
                                 .rows = {how.data(), batch},
                                 .refined = {refined.data(), batch}};
    };
    auto call = [&](int i, cudaStream_t stream) {
      cuda::SampleIdsFromHead(call_of(i), params_of(i), DrawMethod::kGumbel, {ids.data(), batch},
                              {}, stream);
    };
    // The first kernels by themselves.
    auto argument_of = [&](int i) {
      cuda::QuestionArgument question = {};
      question.method = DrawMethod::kGumbel;
      question.params = params.data();
      question.keys = params_of(i).keys.data;
      question.has_keys_per_row = batch > 1;
      return cuda::ArgumentOf(call_of(i), question);
    };
    Result result;
    result.encode_us = timer_.Microseconds(
        [&](int i, cudaStream_t stream) { cuda::LaunchEncode(argument_of(i), stream); });
    result.score_us = timer_.Microseconds([&](int i, cudaStream_t stream) {
      cuda::LaunchEncode(argument_of(i), stream);
      cuda::LaunchScore(argument_of(i), stream);
    });
    result.logits_us = timer_.Microseconds(
        [&](int i, cudaStream_t stream) { cuda::LaunchCertifiedPrefix(argument_of(i), stream); });
    for (int i = 0; i * batch < kStates; ++i) {
      call(i, nullptr);
      cuda::Project(head_, Hidden(i, batch), Logits(logits, batch), nullptr);
      cuda::SampleIds(Logits(logits, batch), params_of(i), DrawMethod::kGumbel,
                      {dense_ids.data(), batch}, {}, nullptr);
      const std::vector<int32_t> actual = ids.Get(), expected = dense_ids.Get();
      for (size_t r = 0; r < rows; ++r) result.wrong += actual[r] != expected[r] ? 1 : 0;
      const std::vector<cuda::HeadRow> of_rows = how.Get();
      const std::vector<int32_t> refined_of_rows = refined.Get();
      for (const cuda::HeadRow& row : of_rows) {
        result.dense += row.path == CertifiedPath::kDense ? 1 : 0;
        result.survivors += static_cast<double>(row.survivors) / static_cast<double>(kStates);
      }
      for (const int32_t count : refined_of_rows) {
        result.refined += static_cast<double>(count) / static_cast<double>(kStates);
      }
      result.bytes +=
          static_cast<double>(cuda::BytesRead(device_planes_, of_rows, refined_of_rows) * batch) /
          static_cast<double>(vocab() * dim() * 2 * kStates);
    }
    result.us = timer_.Microseconds(call);
    if (device_planes_.kind == CertificateKind::kStrict) {
      auto by_first_plane = [&](int i, cudaStream_t stream) {
        cuda::CertifiedArgs argument = argument_of(i);
        argument.memory.probed = nullptr;
        Draw(argument, params_of(i), ids.data(), stream);
      };
      for (int i = 0; i * batch < kStates; ++i) {
        by_first_plane(i, nullptr);
        for (const cuda::HeadRow& row : how.Get()) {
          result.first_plane_dense += row.path == CertifiedPath::kDense ? 1 : 0;
        }
      }
      result.first_plane_us = timer_.Microseconds(by_first_plane);
      result.us = 0.5 * (result.us + timer_.Microseconds(call));
      constexpr double kLong = 1000.0;  // with a spread that is small against the demand
      if (result.first_plane_us < kLong) {
        result.first_plane_us = 0.5 * (result.first_plane_us + timer_.Microseconds(by_first_plane));
      }
      for (const int32_t few : few_) {
        result.few_us.push_back(timer_.Microseconds([&](int i, cudaStream_t stream) {
          cuda::CertifiedArgs argument = argument_of(i);
          argument.few_to_refine = few;
          Draw(argument, params_of(i), ids.data(), stream);
        }));
      }
    }
    result.energy_uj = Energy(call);
    return result;
  }

 private:
  double Energy(const std::function<void(int, cudaStream_t)>& call) const {
    if (energy_seconds_ <= 0.0 || meter_.Joules() < 0.0) return -1.0;
    double before = 0.0;
    const int64_t calls = timer_.CallsFor(energy_seconds_, call, [&] { before = meter_.Joules(); });
    return (meter_.Joules() - before) * 1e6 / static_cast<double>(calls);
  }
  MatrixView Hidden(int i, int64_t batch) const {
    return {hidden_.data() + i * batch % kStates * dim(),
            batch,
            dim(),
            dim(),
            DType::kBf16,
            {DeviceKind::kCuda, 0}};
  }
  MutableLogitsView Logits(const DeviceMemory<float>& memory, int64_t batch) const {
    return {memory.data(), batch, vocab(), vocab(), DType::kF32, {DeviceKind::kCuda, 0}};
  }

  // As SampleIds, of a call that was changed.
  static void Draw(const cuda::CertifiedArgs& argument, const cuda::RowParams& params, int32_t* ids,
                   cudaStream_t stream) {
    const cuda::DrawnTokens tokens = {ids, nullptr};
    cuda::LaunchCertifiedPrefix(argument, stream);
    cuda::SampleSurvivors(argument, params, DrawMethod::kGumbel, tokens, stream);
    cuda::LaunchDense(argument, stream);
    cuda::SampleDenseRows(argument, params, DrawMethod::kGumbel, tokens, stream);
  }

  double energy_seconds_;
  std::vector<int32_t> few_;
  EnergyMeter meter_;
  MadeHead made_;
  DeviceMemory<uint16_t> weights_;
  DeviceMemory<uint16_t> hidden_;
  HeadPlanes planes_;
  DeviceMemory<std::byte> plane_memory_;
  cuda::HeadWeights head_;
  cuda::DevicePlanes device_planes_;
  ReplayTimer timer_;
};

struct Options {
  std::vector<HeadShape> heads = {{128256, 4096}, {151936, 1024}, {262144, 640}};
  std::vector<int64_t> batches = {1, 8, 32};
  std::vector<std::string> tasks;
  CertificateKind kind = CertificateKind::kDither4;
  std::vector<int32_t> few;
  double energy_seconds = 0.0;

  explicit Options(ProgramFlags& flags) {
    flags.Head("--head", heads, "the heads");
    flags.Number("--batch", batches, {1, kStates}, "hidden states of a call");
    std::vector<std::string> names = NamesOf(kTasks);
    names.insert(names.begin(), "dense");
    flags.Names("--task", tasks, names, "only these");
    flags.Choice("--kind", kind,
                 ByName(std::array{CertificateKind::kDither4, CertificateKind::kStrict}),
                 "of the planes");
    flags.Number("--few", few, {0, kMaxVocab},
                 "tokens computed at once, of strict planes, without a look into the second");
    // The driver's counter moves in steps that are long compared with a call.
    flags.Number("--energy", energy_seconds, {1, 3600},
                 "seconds that a call is repeated for its energy");
  }
};

void Run(const Options& options) {
  const std::vector<int32_t>& few = options.few;
  const CertificateKind kind = options.kind;
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  DeviceReport report(ThisGpu());
  for (const HeadShape& shape : options.heads) {
    const HeadBench bench(shape.vocab, shape.dim, kind, options.energy_seconds, few,
                          pool.parallel());
    const double weights_us = bench.ReadWeights();
    const double planes_us = bench.ReadPlanes();
    std::fprintf(stderr, "%lldx%lld: read of weights %.1f us, of planes %.1f us\n",
                 static_cast<long long>(shape.vocab), static_cast<long long>(shape.dim), weights_us,
                 planes_us);
    for (const int64_t batch : options.batches) {
      const Result library = bench.Library(batch);
      auto print = [&](const char* task, const Result& result) {
        std::string few_times;
        for (size_t n = 0; n < result.few_us.size(); ++n) {
          few_times += Printed(", \"few_%d_ns\": %.0f", few[n], result.few_us[n] * 1e3);
        }
        report.Row(
            "{\"bench\": \"cuda\", \"task\": \"head-%s\", \"planes\": \"%s\", \"n\": %lld, "
            "\"dim\": %lld, \"batch\": %lld, \"ns\": %.0f, \"library_ns\": %.0f, "
            "\"energy_uj\": %.0f, \"library_energy_uj\": %.0f, "
            "\"encode_ns\": %.0f, \"score_ns\": %.0f, \"logits_ns\": %.0f, "
            "\"weights_floor_ns\": %.0f, \"planes_floor_ns\": %.0f, \"exact\": %s, "
            "\"survivors\": %.1f, \"refined\": %.1f, \"bytes\": %.4f, \"dense_rows\": %lld, "
            "\"first_plane_ns\": %.0f, \"first_plane_dense_rows\": %lld%s}",
            task, std::string(Name(kind)).c_str(), static_cast<long long>(shape.vocab),
            static_cast<long long>(shape.dim), static_cast<long long>(batch), result.us * 1e3,
            library.us * 1e3, result.energy_uj, library.energy_uj, result.encode_us * 1e3,
            result.score_us * 1e3, result.logits_us * 1e3, weights_us * 1e3, planes_us * 1e3,
            result.wrong == 0 ? "true" : "false", result.survivors, result.refined, result.bytes,
            static_cast<long long>(result.dense), result.first_plane_us * 1e3,
            static_cast<long long>(result.first_plane_dense), few_times.c_str());
        std::fprintf(
            stderr,
            "%6lldx%-4lld B=%-3lld %-9s %8.1f us  library %7.1f  of it %5.2f  of the "
            "floor %5.2f  (%.1f %.1f %.1f)  refined %8.1f  survivors %7.1f  dense %lld  wrong "
            "%lld  first plane %8.1f us\n",
            static_cast<long long>(shape.vocab), static_cast<long long>(shape.dim),
            static_cast<long long>(batch), task, result.us, library.us, result.us / library.us,
            result.us / planes_us, result.encode_us, result.score_us, result.logits_us,
            result.refined, result.survivors, static_cast<long long>(result.dense),
            static_cast<long long>(result.wrong), result.first_plane_us);
        for (size_t n = 0; n < result.few_us.size(); ++n) {
          std::fprintf(stderr, "    up to %d at once: %.1f us\n", few[n], result.few_us[n]);
        }
      };
      if (IsSelected(options.tasks, "dense")) print("dense", bench.Dense(batch));
      for (const Task& task : kTasks) {
        if (IsSelected(options.tasks, task.name)) print(task.name, bench.Certified(task, batch));
      }
    }
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(argc, argv, "sluice_cuda_head",
                                   "Times heads on a GPU, from hidden states to tokens.",
                                   sluice::bench::Run);
}
