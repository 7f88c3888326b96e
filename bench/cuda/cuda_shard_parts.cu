// What a rank of a sharded step computes, on one GPU: the ranks of 1, 2 and 4 slices one after the
// other, each with the messages that the others have sent it before. Usage: sluice_cuda_shard_parts
// --help.
//
//   part-certified-*  hidden states to tokens by planes of the slice (ShardHeadCall)
//   part-library-*    the library's product of the slice, then the draw (ShardCall)
//   part-logprobs-*   log-probabilities of drawn tokens from logits of the slice
//   one-gpu-*         the whole vocabulary, by the calls without slices
//
// `ns` is the slowest rank's, `least_ns` the fastest one's: a median of replays of a graph of
// twenty calls. An exchange is a copy on the device here, whatever a network takes comes on top
// (docs/notes/scaling.md has a model of it). Tokens of certified heads are compared with those of
// the whole dense head.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/cublas_product.cuh"
#include "bench/cuda/part_group.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/head/heads.h"
#include "bench/support/program_flags.h"
#include "sluice/cuda/certified_sample.hpp"
#include "support/thread_pool.h"

namespace sluice::bench {
namespace {

constexpr int kCalls = 20;
constexpr Device kHere = {DeviceKind::kCuda, 0};

struct Mode {
  const char* name;
  SelectParams params;
  int32_t candidates;
  cuda::ShardRows kind = cuda::ShardRows::kListed;
  bool needs_cuts = true;
  cuda::ShardExchanges exchanges = cuda::ShardExchanges::kOne;
  bool is_of_planes_only = false;
};

const Mode kModes[] = {
    {"greedy", {.temperature = 0.0f}, 1},
    {"k50-p0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}, 50},
    {"softmax", {}, 16, cuda::ShardRows::kDrawn, false},
    // By the dense head of the slice: what a Cut of everything costs.
    {"softmax-cut", {}, 16, cuda::ShardRows::kListed, true, cuda::ShardExchanges::kTwo, true},
};

struct LogprobTask {
  const char* name;
  LogprobMode mode;
  int32_t width;
};
constexpr LogprobTask kLogprobTasks[] = {
    {"raw", LogprobMode::kRawLogprobs, 0},
    {"raw-20", LogprobMode::kRawLogprobs, 21},
    {"processed-20", LogprobMode::kProcessedLogprobs, 21},
};

struct Times {
  double most = 0.0;
  double least = 1e30;
  void Add(double us) {
    most = std::max(most, us);
    least = std::min(least, us);
  }
};

// Of one GPU: the head, its hidden states, and what all calls on it share.
struct Whole {
  Whole(int64_t vocab, int64_t dim, int64_t states)
      : made(vocab, dim, states),
        weight(static_cast<size_t>(vocab * dim)),
        hidden(static_cast<size_t>(states * dim)) {
    RequireCuda(
        cudaMemcpy(weight.data(), made.weight().data, weight.size() * 2, cudaMemcpyHostToDevice));
    RequireCuda(cudaMemcpy(hidden.data(), made.hidden(0, states).data, hidden.size() * 2,
                           cudaMemcpyHostToDevice));
    RequireCuda(cudaStreamCreate(&stream));
  }
  ~Whole() { cudaStreamDestroy(stream); }
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;

  int64_t vocab() const { return made.weight().rows; }
  int64_t dim() const { return made.weight().columns; }
  MatrixView Hidden(int64_t batch) const {
    return {hidden.data(), batch, dim(), dim(), DType::kBf16, kHere};
  }
  MatrixView Weight(const ShardSlice& slice) const {
    return {
        weight.data() + slice.first_id * dim(), slice.tokens, dim(), dim(), DType::kBf16, kHere};
  }
  template <typename Call>
  double Microseconds(Call call) const {
    call();
    RequireCuda(cudaStreamSynchronize(stream));
    GraphReplay replay(stream, cudaStreamCaptureModeThreadLocal, [&] {
      for (int i = 0; i < kCalls; ++i) call();
    });
    return replay.Microseconds() / kCalls;
  }

  MadeHead made;
  DeviceMemory<uint16_t> weight;
  DeviceMemory<uint16_t> hidden;
  cudaStream_t stream = nullptr;
};

// The library's product of a slice.
class LibraryHead {
 public:
  LibraryHead(const Whole& whole, const ShardSlice& slice, int64_t batch)
      : whole_(whole),
        weight_(static_cast<const uint16_t*>(whole.Weight(slice).data)),
        logits_(static_cast<size_t>(batch * slice.tokens)),
        view_{logits_.data(), batch, slice.tokens, slice.tokens, DType::kBf16, kHere} {
    if (!product_.is_there()) throw std::runtime_error("no cuBLASLt");
    const int ways = product_.Plan(slice.tokens, whole.dim(), batch);
    for (int way = 0; way < ways; ++way) {
      bool is_done = true;
      const double us = whole.Microseconds([&] { is_done = Multiply(way) && is_done; });
      if (!is_done || us >= us_) continue;
      us_ = us;
      way_ = way;
    }
    Multiply();
    RequireCuda(cudaStreamSynchronize(whole.stream));
  }

  bool Multiply() { return Multiply(way_); }
  double us() const { return us_; }
  const LogitsView& logits() const { return view_; }

 private:
  bool Multiply(int way) {
    return product_.Multiply(way, weight_, whole_.hidden.data(), logits_.data(), whole_.stream);
  }

  const Whole& whole_;
  const uint16_t* weight_;
  CublasProduct product_;
  DeviceMemory<uint16_t> logits_;
  LogitsView view_;
  double us_ = 1e30;
  int way_ = 0;
};

// What ranks have been given, and what they answer.
struct Answers {
  explicit Answers(int64_t batch)
      : batch(batch),
        results(static_cast<size_t>(batch)),
        ways(static_cast<size_t>(batch)),
        how(static_cast<size_t>(batch)) {}
  cuda::DeviceArray<TokenResult> result_array() const { return {results.data(), batch}; }
  cuda::DeviceArray<ShardPath> way_array() const { return {ways.data(), batch}; }

  int64_t batch;
  DeviceMemory<TokenResult> results;
  DeviceMemory<ShardPath> ways;
  DeviceMemory<cuda::HeadRow> how;
};

// A rank's planes, of all batches.
class SlicePlanes {
 public:
  SlicePlanes(const Whole& whole, const ShardSlice& slice, const ParallelFor& parallel)
      : slice_(slice), whole_(whole) {
    const MatrixView all = whole.made.weight();
    const auto* const first = static_cast<const uint16_t*>(all.data) + slice.first_id * all.columns;
    const HeadPlanes planes = HeadPlanes::Build(
        {first, slice.tokens, all.columns, all.columns, DType::kBf16, {}}, {.seed = 7}, parallel);
    memory_ = std::make_unique<DeviceMemory<std::byte>>(cuda::DevicePlaneBytes(planes));
    planes_ = cuda::UploadPlanes(planes, {memory_->data(), memory_->size()}, nullptr);
  }

  const ShardSlice& slice() const { return slice_; }
  size_t WorkspaceBytes(int64_t batch) const {
    return cuda::CertifiedWorkspaceBytes(planes_, batch);
  }
  cuda::CertifiedCall Call(int64_t batch, const DeviceMemory<std::byte>& workspace,
                           const Answers& answers) const {
    return {.head = {whole_.Weight(slice_), {}},
            .planes = planes_,
            .hidden = whole_.Hidden(batch),
            .workspace = {workspace.data(), workspace.size()},
            .rows = {answers.how.data(), batch}};
  }

 private:
  ShardSlice slice_;
  const Whole& whole_;
  std::unique_ptr<DeviceMemory<std::byte>> memory_;
  cuda::DevicePlanes planes_;
};

std::vector<ShardSlice> EvenSlices(int64_t vocab, int32_t ranks) {
  std::vector<ShardSlice> slices;
  for (int32_t r = 0; r < ranks; ++r) {
    const int64_t tokens = vocab / ranks;
    const int64_t first = r * tokens;
    slices.push_back({vocab, first, r + 1 == ranks ? vocab - first : tokens});
  }
  return slices;
}

class PartsBench {
 public:
  PartsBench(const HeadShape& head, int64_t most_rows, const ParallelFor& parallel,
             DeviceReport& report)
      : whole_(head.vocab, head.dim, most_rows), parallel_(parallel), report_(report) {
    std::vector<NoiseKey> keys;
    for (int64_t r = 0; r < most_rows; ++r) keys.push_back({17, static_cast<uint32_t>(r)});
    keys_ = std::make_unique<DeviceMemory<NoiseKey>>(keys);
  }

  void Time(int32_t ranks, const std::vector<int64_t>& batches) {
    std::vector<PartGroup> groups;
    std::vector<std::unique_ptr<SlicePlanes>> planes;
    const std::vector<ShardSlice> slices = EvenSlices(whole_.vocab(), ranks);
    for (const ShardSlice& slice : slices) {
      groups.emplace_back(static_cast<int32_t>(groups.size()), ranks);
      planes.push_back(std::make_unique<SlicePlanes>(whole_, slice, parallel_));
    }
    for (const int64_t batch : batches) {
      for (const Mode& mode : kModes) TimeCertified(groups, planes, mode, batch);
      TimeLibrary(groups, slices, batch);
    }
  }

 private:
  using Workspaces = std::vector<std::unique_ptr<DeviceMemory<std::byte>>>;

  cuda::RowParams ParamsOf(const DeviceMemory<SelectParams>& params, int64_t batch) const {
    return {{params.data(), 1}, {keys_->data(), batch}};
  }

  // By the whole dense head.
  std::vector<int32_t> Tokens(const Mode& mode, int64_t batch) const {
    const DeviceMemory<float> logits(static_cast<size_t>(batch * whole_.vocab()));
    const DeviceMemory<SelectParams> params(std::vector<SelectParams>{mode.params});
    const DeviceMemory<int32_t> ids(static_cast<size_t>(batch));
    const MutableLogitsView view{logits.data(),  batch,       whole_.vocab(),
                                 whole_.vocab(), DType::kF32, kHere};
    const ShardSlice all{whole_.vocab(), 0, whole_.vocab()};
    cuda::Project({whole_.Weight(all), {}}, whole_.Hidden(batch), view, nullptr);
    cuda::SampleIds(LogitsView{view.data, batch, view.vocab, view.stride, view.dtype, kHere},
                    ParamsOf(params, batch), DrawMethod::kGumbel, {ids.data(), batch}, {}, nullptr);
    return ids.Get();
  }

  void TimeCertified(std::vector<PartGroup>& groups,
                     const std::vector<std::unique_ptr<SlicePlanes>>& planes, const Mode& mode,
                     int64_t batch) {
    const auto ranks = static_cast<int32_t>(groups.size());
    const DeviceMemory<SelectParams> params(std::vector<SelectParams>{mode.params});
    const std::vector<int32_t> expected = Tokens(mode, batch);
    Workspaces of_head, of_shard, logits;
    std::vector<std::unique_ptr<Answers>> answers;
    std::vector<cuda::ShardHeadCall> calls;
    for (const auto& own : planes) {
      answers.push_back(std::make_unique<Answers>(batch));
      of_head.push_back(std::make_unique<DeviceMemory<std::byte>>(own->WorkspaceBytes(batch)));
      of_shard.push_back(std::make_unique<DeviceMemory<std::byte>>(
          cuda::ShardWorkspaceBytes(batch, mode.candidates, ranks)));
      const int64_t tokens = own->slice().tokens;
      logits.push_back(std::make_unique<DeviceMemory<std::byte>>(
          static_cast<size_t>(batch * tokens) * sizeof(float)));
      calls.push_back(
          {.head = own->Call(batch, *of_head.back(), *answers.back()),
           .slice = own->slice(),
           .params = ParamsOf(params, batch),
           .candidates = mode.candidates,
           .exchanges = mode.exchanges,
           .needs_cuts = mode.needs_cuts,
           .workspace = {of_shard.back()->data(), of_shard.back()->size()},
           .logits = {logits.back()->data(), batch, tokens, tokens, DType::kF32, kHere}});
    }
    auto call = [&](size_t r) {
      cuda::Sample(calls[r], groups[r], answers[r]->result_array(), answers[r]->way_array(),
                   whole_.stream);
    };
    Meet(groups, call);
    int64_t wrong = 0, dense = 0;
    for (const auto& of_rank : answers) {
      const std::vector<TokenResult> results = of_rank->results.Get();
      for (size_t r = 0; r < results.size(); ++r) wrong += results[r].id != expected[r] ? 1 : 0;
      for (const cuda::HeadRow& row : of_rank->how.Get()) {
        dense += row.path == CertifiedPath::kDense ? 1 : 0;
      }
    }
    Times times;
    for (size_t r = 0; r < calls.size(); ++r) times.Add(whole_.Microseconds([&] { call(r); }));
    Report("part-certified", mode.name, ranks, batch, times, dense, wrong);
    if (ranks > 1 || mode.is_of_planes_only) return;
    const DeviceMemory<int32_t> ids(static_cast<size_t>(batch));
    Times alone;
    alone.Add(whole_.Microseconds([&] {
      cuda::SampleIdsFromHead(calls[0].head, calls[0].params, DrawMethod::kGumbel,
                              {ids.data(), batch}, {}, whole_.stream);
    }));
    Report("one-gpu-certified", mode.name, 1, batch, alone, -1, -1);
  }

  void TimeLibrary(std::vector<PartGroup>& groups, const std::vector<ShardSlice>& slices,
                   int64_t batch) {
    const auto ranks = static_cast<int32_t>(groups.size());
    std::vector<std::unique_ptr<LibraryHead>> heads;
    Times alone;
    for (const ShardSlice& slice : slices) {
      heads.push_back(std::make_unique<LibraryHead>(whole_, slice, batch));
      alone.Add(heads.back()->us());
    }
    Report("part-library", "head", ranks, batch, alone, -1, -1);
    for (const Mode& mode : kModes) {
      if (mode.is_of_planes_only) continue;
      const DeviceMemory<SelectParams> params(std::vector<SelectParams>{mode.params});
      Workspaces workspaces;
      std::vector<std::unique_ptr<Answers>> answers;
      std::vector<cuda::ShardCall> calls;
      for (size_t r = 0; r < slices.size(); ++r) {
        answers.push_back(std::make_unique<Answers>(batch));
        workspaces.push_back(std::make_unique<DeviceMemory<std::byte>>(
            cuda::ShardWorkspaceBytes(batch, mode.candidates, ranks)));
        calls.push_back({.logits = heads[r]->logits(),
                         .slice = slices[r],
                         .params = ParamsOf(params, batch),
                         .candidates = mode.candidates,
                         .kind = mode.kind,
                         .exchanges = mode.exchanges,
                         .workspace = {workspaces.back()->data(), workspaces.back()->size()}});
      }
      auto draw = [&](size_t r) {
        cuda::Sample(calls[r], groups[r], answers[r]->result_array(), answers[r]->way_array(),
                     whole_.stream);
      };
      Meet(groups, draw);
      Times steps, draws;
      for (size_t r = 0; r < calls.size(); ++r) {
        steps.Add(whole_.Microseconds([&] {
          heads[r]->Multiply();
          draw(r);
        }));
        draws.Add(whole_.Microseconds([&] { draw(r); }));
      }
      Report("part-library", mode.name, ranks, batch, steps, -1, -1);
      Report("part-draw", mode.name, ranks, batch, draws, -1, -1);
      if (std::strcmp(mode.name, "k50-p0.9") == 0) {
        TimeLogprobs(groups, calls, answers, batch);
      }
    }
  }

  void TimeLogprobs(std::vector<PartGroup>& groups, const std::vector<cuda::ShardCall>& sampled,
                    const std::vector<std::unique_ptr<Answers>>& answers, int64_t batch) {
    const auto ranks = static_cast<int32_t>(groups.size());
    for (const LogprobTask& task : kLogprobTasks) {
      const auto places = static_cast<size_t>(batch * std::max(task.width, 1));
      const DeviceMemory<int32_t> ids(places);
      const DeviceMemory<float> values(places);
      cuda::DeviceLogprobLists lists;
      if (task.width > 0) {
        lists = {task.width, {ids.data(), ids.size()}, {values.data(), values.size()}};
      }
      Workspaces workspaces;
      std::vector<cuda::ShardLogprobCall> calls;
      for (const cuda::ShardCall& call : sampled) {
        workspaces.push_back(std::make_unique<DeviceMemory<std::byte>>(
            cuda::ShardLogprobWorkspaceBytes(batch, task.width, ranks)));
        calls.push_back({.logits = call.logits,
                         .slice = call.slice,
                         .params = call.params,
                         .mode = task.mode,
                         .lists = lists,
                         .workspace = {workspaces.back()->data(), workspaces.back()->size()}});
      }
      auto call = [&](size_t r) {
        cuda::Logprobs(calls[r], groups[r], answers[r]->result_array(), whole_.stream);
      };
      Meet(groups, call);
      Times times;
      for (size_t r = 0; r < calls.size(); ++r) times.Add(whole_.Microseconds([&] { call(r); }));
      Report("part-logprobs", task.name, ranks, batch, times, -1, -1);
      if (ranks > 1) continue;
      Times alone;
      alone.Add(whole_.Microseconds([&] {
        cuda::Logprobs(calls[0].logits, calls[0].params, task.mode, answers[0]->result_array(), {},
                       whole_.stream, lists);
      }));
      Report("one-gpu-logprobs", task.name, 1, batch, alone, -1, -1);
    }
  }

  // dense, wrong: of all ranks; negative: not counted.
  void Report(const char* task, const char* mode, int32_t ranks, int64_t batch, const Times& times,
              int64_t dense, int64_t wrong) {
    std::string counts;
    if (wrong >= 0) {
      counts = Printed(", \"planes\": \"dither4\", \"dense_rows\": %lld, \"exact\": %s",
                       static_cast<long long>(dense), wrong == 0 ? "true" : "false");
    }
    report_.Row(
        "{\"bench\": \"cuda-shards\", \"task\": \"%s-%s\", \"backend\": \"cuda\", \"dtype\": "
        "\"bfloat16\", \"vocab\": %lld, \"dim\": %lld, \"batch\": %lld, \"distribution\": "
        "\"made-head\", \"ranks\": %d, \"ns\": %.0f, \"least_ns\": %.0f%s}",
        task, mode, static_cast<long long>(whole_.vocab()), static_cast<long long>(whole_.dim()),
        static_cast<long long>(batch), ranks, times.most * 1e3, times.least * 1e3, counts.c_str());
    std::fprintf(stderr, "%d of B=%-3lld %-17s %-12s %8.1f us (%.1f)%s\n", ranks,
                 static_cast<long long>(batch), task, mode, times.most, times.least,
                 wrong > 0 ? " WRONG" : "");
  }

  Whole whole_;
  const ParallelFor& parallel_;
  std::unique_ptr<DeviceMemory<NoiseKey>> keys_;
  DeviceReport& report_;
};

struct Options {
  HeadShape head = {128256, 8192};
  std::vector<int32_t> ranks = {1, 2, 4};
  std::vector<int64_t> batches = {32, 8, 1};

  explicit Options(ProgramFlags& flags) {
    flags.Head("--head", head, "the whole head");
    flags.Number("--ranks", ranks, {1, 16}, "slices of it");
    flags.Number("--batch", batches, {1, cuda::kMostCertifiedRows}, "hidden states of a call");
  }
};

void Run(const Options& options) {
  const auto& [head, ranks, batches] = options;
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  DeviceReport report(ThisGpu());
  const ParallelFor parallel = pool.parallel();
  PartsBench bench(head, *std::max_element(batches.begin(), batches.end()), parallel, report);
  for (const int32_t count : ranks) bench.Time(count, batches);
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(
      argc, argv, "sluice_cuda_shard_parts",
      "Times what the ranks of a sharded step compute, one after the other on one GPU.",
      sluice::bench::Run);
}
