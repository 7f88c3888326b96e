// Head and sampling with the vocabulary split among the GPUs of one host, a process each, NCCL
// between them: first that all modes give the tokens of one GPU, bit for bit, then the time of a
// step by graph replay, of one GPU and of --ranks. Usage: sluice_cuda_shards --help.
//
// Steps: the library's product of bf16 weights [vocab, dim] and hidden states, then one of
//   sharded   the slice's product, cuda::Sample of cuda/shards.hpp
//   gathered  the slice's product, all logits to every rank, Sample on whole rows
//   one GPU   the whole product, SampleIds
// and each without the head; and exchanges alone, for the model of docs/notes/scaling.md. The
// logits of a step are normal with a deviation of 4.5: nuclei (p = 0.9) of some 100 tokens.
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "bench/cuda/cublas_product.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/support/program_flags.h"
#include "semantics/draw/philox.h"
#include "sluice/cuda/nccl_shards.hpp"

namespace sluice::bench {
namespace {

constexpr std::chrono::milliseconds kLimit{60'000};
constexpr int64_t kVocab = 128256;
constexpr int64_t kDim = 8192;

__device__ float UniformOf(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// Logits of every shape: by row normal of some deviation, with outliers, of few values, masked.
__global__ void RowsKernel(float* logits, uint16_t* narrow, int64_t rows, int64_t vocab,
                           uint64_t seed) {
  const int64_t count = rows * vocab;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint32_t row = static_cast<uint32_t>(i / vocab);
    const semantics::Block noise =
        semantics::Philox(seed, static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 1, 0);
    float sum = -2.0f;
    for (const uint32_t word : noise.word) sum += UniformOf(word);
    float x = 1.732f * sum * (1.0f + static_cast<float>(row % 5));
    const uint32_t pick = noise.word[0] & 0xffffu;
    if (row % 3 == 0 && pick < 20) x += 10.0f + static_cast<float>(pick);
    if (row % 7 == 1) x = rintf(x);
    if (row % 7 == 2 && (noise.word[1] & 15u) != 0) x = -INFINITY;
    if (row % 97 == 5 && i % vocab == 77) x = NAN;
    const uint16_t bits = static_cast<uint16_t>(__float_as_uint(x) >> 16);
    if (narrow != nullptr) {
      narrow[i] = bits;
    } else {
      logits[i] = x;
    }
  }
}

__global__ void WeightsKernel(uint16_t* values, int64_t count, float scale, uint32_t seed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    uint32_t word = static_cast<uint32_t>(i) * 0x9e3779b9u + static_cast<uint32_t>(i >> 32) + seed;
    word = (word ^ (word >> 16)) * 0x85ebca6bu;
    word = (word ^ (word >> 13)) * 0xc2b2ae35u;
    const float x = (2.0f * UniformOf(word ^ (word >> 16)) - 1.0f) * scale;
    values[i] = static_cast<uint16_t>(__float_as_uint(x) >> 16);
  }
}

struct Mode {
  const char* name;
  SelectParams params;
  cuda::ShardExchanges exchanges;
  int32_t candidates;
  cuda::ShardRows kind = cuda::ShardRows::kListed;
};

const Mode kModes[] = {
    {"greedy", {.temperature = 0.0f}, cuda::ShardExchanges::kOne, 1},
    {"k50", {.top_k = 50}, cuda::ShardExchanges::kOne, 50},
    {"k50-p0.9", {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}, cuda::ShardExchanges::kOne, 50},
    {"p0.9", {.top_p = 0.9f}, cuda::ShardExchanges::kTwo, 256},
    {"min-p0.05", {.min_p = 0.05f}, cuda::ShardExchanges::kOne, 64},
    {"softmax", {}, cuda::ShardExchanges::kOne, 16, cuda::ShardRows::kDrawn},
    {"softmax-any", {}, cuda::ShardExchanges::kTwo, 16, cuda::ShardRows::kAny},
};

int64_t TimesToCheck(int64_t rows, int64_t batch) { return (rows + batch - 1) / batch; }

class Rank {
 public:
  Rank(ShardGroup& group, DeviceReport& report) : group_(group), report_(report) {
    RequireCuda(cudaSetDevice(group.rank()));
    RequireCuda(cudaStreamCreate(&stream_));
    if (group.ranks() > 1) nccl_ = cuda::ConnectNcclGroup(group, kLimit);
  }

  bool IsFirst() const { return group_.rank() == 0; }

  // Rows of every shape with parameters of every kind, against Sample on the whole rows.
  void Check(int64_t rows) {
    constexpr int64_t kBatch = 1000;
    DeviceMemory<float> logits(static_cast<size_t>(kBatch * kVocab));
    std::vector<SelectParams> params;
    for (int64_t r = 0; r < kBatch; ++r) params.push_back(ParamsOf(r));
    const DeviceMemory<SelectParams> device_params(params);
    DeviceMemory<NoiseKey> keys(static_cast<size_t>(kBatch));
    DeviceMemory<TokenResult> expected(static_cast<size_t>(kBatch));
    DeviceMemory<TokenResult> results(static_cast<size_t>(kBatch));
    DeviceMemory<ShardPath> paths(static_cast<size_t>(kBatch));
    const int32_t candidates = std::min(256, cuda::kMostDeviceCandidates / group_.ranks());
    const DeviceMemory<std::byte> workspace(
        cuda::ShardWorkspaceBytes(kBatch, candidates, group_.ranks()));
    cuda::ShardCall widest;
    widest.logits = {nullptr, kBatch, kVocab, kVocab, DType::kF32, Here()};
    widest.slice = {kVocab, 0, kVocab};
    const DeviceMemory<std::byte> gathered(
        cuda::GatheredWorkspaceBytes(widest, group_.ranks(), kVocab));
    int64_t differ = 0, differ_exchanged = 0, of_way[kShardPaths] = {};
    for (int64_t i = 0; i < TimesToCheck(rows, kBatch); ++i) {
      const bool is_narrow = i % 2 == 1;
      RowsKernel<<<4096, 256, 0, stream_>>>(
          logits.data(), is_narrow ? reinterpret_cast<uint16_t*>(logits.data()) : nullptr, kBatch,
          kVocab, static_cast<uint64_t>(i));
      std::vector<NoiseKey> host_keys;
      for (int64_t r = 0; r < kBatch; ++r) {
        host_keys.push_back({static_cast<uint64_t>(i), static_cast<uint32_t>(r)});
      }
      RequireCuda(cudaStreamSynchronize(stream_));
      keys.Set(host_keys);
      const std::vector<ShardSlice> slices = SlicesOf(i);
      cuda::ShardCall call;
      const DType dtype = is_narrow ? DType::kBf16 : DType::kF32;
      const LogitsView whole{logits.data(), kBatch, kVocab, kVocab, dtype, Here()};
      call.slice = slices[static_cast<size_t>(group_.rank())];
      call.logits = whole;
      call.logits.data = reinterpret_cast<const std::byte*>(logits.data()) +
                         static_cast<size_t>(call.slice.first_id) * SizeOf(dtype);
      call.logits.vocab = call.slice.tokens;
      call.params = {{device_params.data(), kBatch}, {keys.data(), kBatch}};
      call.candidates = candidates;
      call.kind = i / 2 % 2 == 0 ? cuda::ShardRows::kAny : cuda::ShardRows::kListed;
      call.method = i % 3 == 2 ? DrawMethod::kCdf : DrawMethod::kGumbel;
      call.workspace = {workspace.data(), workspace.size()};
      cuda::Sample(whole, call.params, call.method, {expected.data(), kBatch}, stream_);
      cuda::Sample(call, *nccl_, {results.data(), kBatch}, {paths.data(), kBatch}, stream_);
      cuda::SampleGathered(call, *nccl_, slices, {gathered.data(), gathered.size()},
                           {results.data(), kBatch}, {paths.data(), kBatch}, stream_);
      nccl_->Await(stream_);
      const auto a = results.Get(), b = expected.Get();
      const auto w = paths.Get();
      for (size_t r = 0; r < a.size(); ++r) {
        ++of_way[static_cast<int>(w[r])];
        const bool same = a[r].id == b[r].id && a[r].status == b[r].status &&
                          std::memcmp(&a[r].cut, &b[r].cut, sizeof(Cut)) == 0;
        differ += same ? 0 : 1;
        differ_exchanged += same || w[r] == ShardPath::kGathered ? 0 : 1;
        if (!same && differ <= 5) {
          std::fprintf(stderr, "rank %d batch %lld row %zu way %d: id %d for %d, count %d for %d\n",
                       group_.rank(), static_cast<long long>(i), r, static_cast<int>(w[r]), a[r].id,
                       b[r].id, a[r].cut.count, b[r].cut.count);
        }
      }
    }
    // The worst of all ranks.
    const int64_t all = Largest(static_cast<double>(differ));
    if (!IsFirst()) return;
    report_.Row(
        "{\"bench\": \"cuda-shards\", \"task\": \"equal-to-one-gpu\", \"backend\": \"cuda\", "
        "\"dtype\": \"float32,bfloat16\", \"vocab\": %lld, \"ranks\": %d, \"rows\": %lld, "
        "\"differ\": %lld, \"by_status\": %lld, \"by_candidates\": %lld, \"by_sums\": %lld, "
        "\"by_gathering\": %lld, \"exact\": %s}",
        static_cast<long long>(kVocab), group_.ranks(),
        static_cast<long long>(TimesToCheck(rows, kBatch) * kBatch), static_cast<long long>(all),
        static_cast<long long>(of_way[0]), static_cast<long long>(of_way[1]),
        static_cast<long long>(of_way[2]), static_cast<long long>(of_way[3]),
        all == 0 ? "true" : "false");
    std::fprintf(stderr, "checked %lld rows: %lld differ (%lld of them by exchanges)\n",
                 static_cast<long long>(rows), static_cast<long long>(all),
                 static_cast<long long>(differ_exchanged));
  }

  void TimeSteps(int64_t batch) {
    const ShardSlice slice = EvenSlice();
    const auto rows = static_cast<size_t>(batch);
    CublasProduct product;
    if (!product.is_there()) throw std::runtime_error("no cuBLASLt");
    const int algorithms = product.Plan(slice.tokens, kDim, batch);
    DeviceMemory<uint16_t> weight(static_cast<size_t>(slice.tokens * kDim));
    DeviceMemory<uint16_t> hidden(rows * kDim);
    DeviceMemory<uint16_t> logits(rows * static_cast<size_t>(slice.tokens));
    WeightsKernel<<<4096, 256, 0, stream_>>>(weight.data(), slice.tokens * kDim, 1.0f,
                                             static_cast<uint32_t>(slice.first_id));
    WeightsKernel<<<64, 256, 0, stream_>>>(hidden.data(), batch * kDim, 0.149f, 77);
    int algorithm = 0;
    double fastest = 1e30;
    for (int a = 0; a < algorithms; ++a) {
      const double us = Microseconds([&] {
        return product.Multiply(a, weight.data(), hidden.data(), logits.data(), stream_);
      });
      if (us < fastest) {
        fastest = us;
        algorithm = a;
      }
    }
    auto head = [&] {
      product.Multiply(algorithm, weight.data(), hidden.data(), logits.data(), stream_);
      return true;
    };
    head();
    const double head_us = Largest(fastest);
    const LogitsView own{logits.data(), batch, slice.tokens, slice.tokens, DType::kBf16, Here()};
    DeviceMemory<TokenResult> results(rows);
    DeviceMemory<ShardPath> paths(rows);
    DeviceMemory<int32_t> ids(rows);
    std::vector<NoiseKey> host_keys;
    for (size_t r = 0; r < rows; ++r) host_keys.push_back({7, static_cast<uint32_t>(r)});
    const DeviceMemory<NoiseKey> keys(host_keys);
    std::vector<ShardSlice> slices;
    for (int32_t r = 0; r < group_.ranks(); ++r) slices.push_back(EvenSlice(r));
    const DeviceMemory<std::byte> gathered(rows * kVocab * 8 + (1 << 20));
    for (const Mode& mode : kModes) {
      const DeviceMemory<SelectParams> params(std::vector<SelectParams>{mode.params});
      const cuda::RowParams row_params{{params.data(), 1}, {keys.data(), batch}};
      auto report = [&](const char* task, double step, double sample, double bytes, double left) {
        if (!IsFirst()) return;
        report_.Row(
            "{\"bench\": \"cuda-shards\", \"task\": \"%s-%s\", \"backend\": \"cuda\", \"dtype\": "
            "\"bfloat16\", \"vocab\": %lld, \"dim\": %lld, \"batch\": %lld, \"distribution\": "
            "\"normal-4.5\", \"ranks\": %d, \"ns\": %.0f, \"sample_ns\": %.0f, \"head_ns\": %.0f, "
            "\"bytes_a_row\": %.0f, \"rows_left\": %.0f}",
            task, mode.name, static_cast<long long>(kVocab), static_cast<long long>(kDim),
            static_cast<long long>(batch), group_.ranks(), step * 1e3, sample * 1e3, head_us * 1e3,
            bytes, left);
        std::fprintf(stderr,
                     "%d GPUs B=%-4lld %-9s %-10s step %8.2f us  head %8.2f  sample %7.2f  "
                     "%.0f bytes a row, %.0f rows left\n",
                     group_.ranks(), static_cast<long long>(batch), task, mode.name, step, head_us,
                     sample, bytes, left);
      };
      if (group_.ranks() == 1) {
        auto sample = [&] {
          cuda::SampleIds(own, row_params, DrawMethod::kGumbel, {ids.data(), batch}, {}, stream_);
          return true;
        };
        const double alone = Microseconds(sample);
        report("one-gpu", Microseconds([&] { return head() && sample(); }), alone, 0, 0);
        continue;
      }
      cuda::ShardCall call;
      call.logits = own;
      call.slice = slice;
      call.params = row_params;
      call.exchanges = mode.exchanges;
      call.kind = mode.kind;
      call.candidates = std::min(mode.candidates, cuda::kMostDeviceCandidates / group_.ranks());
      const DeviceMemory<std::byte> workspace(
          cuda::ShardWorkspaceBytes(batch, call.candidates, group_.ranks()));
      call.workspace = {workspace.data(), workspace.size()};
      auto sharded = [&] {
        cuda::Sample(call, *nccl_, {results.data(), batch}, {paths.data(), batch}, stream_);
        return true;
      };
      const double step = Microseconds([&] { return head() && sharded(); });
      double left = 0;
      for (const ShardPath way : paths.Get()) left += way == ShardPath::kGathered ? 1 : 0;
      report("sharded", step, Microseconds(sharded),
             static_cast<double>(cuda::ShardBytesPerRow(call.candidates, call.exchanges)), left);
      auto whole = [&] {
        cuda::SampleGathered(call, *nccl_, slices, {gathered.data(), gathered.size()},
                             {results.data(), batch}, {}, stream_);
        return true;
      };
      const double whole_step = Microseconds([&] { return head() && whole(); });
      report("gathered", whole_step, Microseconds(whole), static_cast<double>(slice.tokens) * 2, 0);
    }
  }

  void TimeExchanges() {
    for (const int64_t bytes : {64, 1024, 16384, 131072, 1 << 20, 4 << 20}) {
      const DeviceMemory<std::byte> own(static_cast<size_t>(bytes));
      const DeviceMemory<std::byte> all(static_cast<size_t>(bytes * group_.ranks()));
      const double us = Microseconds([&] {
        nccl_->AllGather({own.data(), bytes}, {all.data(), bytes * group_.ranks()}, stream_);
        return true;
      });
      if (!IsFirst()) continue;
      report_.Row(
          "{\"bench\": \"cuda-shards\", \"task\": \"exchange\", \"backend\": \"cuda\", "
          "\"ranks\": %d, \"bytes\": %lld, \"ns\": %.0f}",
          group_.ranks(), static_cast<long long>(bytes), us * 1e3);
      std::fprintf(stderr, "exchange of %lld bytes: %.2f us\n", static_cast<long long>(bytes), us);
    }
  }

 private:
  Device Here() const { return {DeviceKind::kCuda, group_.rank()}; }

  ShardSlice EvenSlice(int32_t rank) const {
    const int64_t tokens = kVocab / group_.ranks();
    const bool is_last = rank + 1 == group_.ranks();
    return {kVocab, rank * tokens, is_last ? kVocab - rank * tokens : tokens};
  }
  ShardSlice EvenSlice() const { return EvenSlice(group_.rank()); }

  // Even, uneven, and unaligned ones.
  std::vector<ShardSlice> SlicesOf(int64_t i) const {
    const int32_t ranks = group_.ranks();
    std::vector<ShardSlice> slices;
    int64_t first = 0;
    for (int32_t r = 0; r < ranks; ++r) {
      const int64_t even = kVocab / ranks;
      const int64_t wanted[] = {even, even + 13, 1000 + 7 * r, even / 3 + 1, even - 64};
      const int64_t tokens = r + 1 == ranks ? kVocab - first : wanted[i % 5];
      slices.push_back({kVocab, first, tokens});
      first += tokens;
    }
    return slices;
  }

  static SelectParams ParamsOf(int64_t row) {
    SelectParams params;
    const int64_t kind = row % 11;
    if (kind == 1) params = {.temperature = 0.0f};
    if (kind == 2) params = {.top_k = 50};
    if (kind == 3) params = {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f};
    if (kind == 4) params = {.top_p = 0.9f};
    if (kind == 5) params = {.min_p = 0.05f};
    if (kind == 6) params = {.top_k = 200, .min_p = 0.01f};
    if (kind == 7) params = {.temperature = 1.4f, .top_p = 0.95f, .min_p = 0.02f};
    if (kind == 8) params = {.top_k = 40, .top_p = 0.95f, .xtc_probability = 0.5f};
    if (kind == 9) params = {.temperature = 1.2f};
    if (kind == 10) params = {.top_k = 20, .top_p = 0.8f, .typical_p = row % 2 == 0 ? 1.0f : 0.9f};
    params.profile = kProfiles[static_cast<size_t>(row / 11) % std::size(kProfiles)].profile;
    return params;
  }

  double Largest(double own) {
    std::vector<double> all(static_cast<size_t>(group_.ranks()));
    group_.AllGather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
    return *std::max_element(all.begin(), all.end());
  }

  // Of a call, on the slowest rank: the median of replays of a graph of calls.
  template <typename Call>
  double Microseconds(Call call) {
    constexpr int kCalls = 20;
    if (!call()) return 1e30;
    RequireCuda(cudaStreamSynchronize(stream_));
    GraphReplay replay(stream_, cudaStreamCaptureModeThreadLocal, [&] {
      for (int i = 0; i < kCalls; ++i) call();
    });
    return Largest(replay.Microseconds([this] { Largest(0); }) / kCalls);  // all begin together
  }

  ShardGroup& group_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<cuda::NcclShardGroup> nccl_;
  DeviceReport& report_;
};

void RunRank(const std::string& folder, int32_t rank, int32_t ranks, int64_t checked) {
  const auto group = ConnectShardGroup(folder, rank, ranks, kLimit);
  // One rank writes the first line, its rows and those of more ranks follow, and Run ends them.
  DeviceReport report = ranks == 1 ? DeviceReport(ThisGpu(), false) : DeviceReport();
  Rank bench(*group, report);
  if (ranks > 1) {
    bench.Check(checked);
    bench.TimeExchanges();
  }
  for (const int64_t batch : {32, 1, 8, 128}) bench.TimeSteps(batch);
}

// A process a rank; answers whether all went well.
bool RunRanks(int32_t ranks, int64_t checked) {
  std::fflush(stdout);
  std::string folder = (std::filesystem::temp_directory_path() / "shards-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return false;
  std::vector<pid_t> processes;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process == 0) {
      int status = 0;
      try {
        RunRank(folder, rank, ranks, checked);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "sluice_cuda_shards: rank %d: %s\n", rank, error.what());
        status = 1;
      }
      std::fflush(stdout);
      _exit(status);
    }
    processes.push_back(process);
  }
  bool all_well = true;
  for (const pid_t process : processes) {
    int status = 0;
    waitpid(process, &status, 0);
    all_well = all_well && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  std::filesystem::remove_all(folder);
  return all_well;
}

struct Options {
  int32_t ranks = 2;
  int64_t checked = 100'000;

  explicit Options(ProgramFlags& flags) {
    flags.Number("--ranks", ranks, {1, 64}, "GPUs");
    flags.Number("--checked", checked, {0, int64_t{1} << 40}, "rows that are compared");
  }
};

// No call of CUDA here: a process that has made one cannot be forked.
int Run(const Options& options) {
  const auto& [ranks, checked] = options;
  const bool all_well = RunRanks(1, checked) && (ranks < 2 || RunRanks(ranks, checked));
  DeviceReport::End();
  return all_well ? 0 : 1;
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(
      argc, argv, "sluice_cuda_shards",
      "Times head and sampling with the vocabulary split among the GPUs of a host.",
      sluice::bench::Run);
}
