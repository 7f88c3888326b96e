// The ablation of Qrita's paper on this implementation: the time of each variant by that of the
// whole method, the memory that each takes, and how often truncation decides, with what a table has
// learned and without. And the time of candidates and log-probabilities against one read of the
// rows. Usage: sluice_cuda_ablation --help.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/cuda/graph_timer.cuh"
#include "bench/cuda/this_gpu.cuh"
#include "bench/support/program_flags.h"
#include "bench/support/rows.h"
#include "sluice/cuda/candidates.hpp"
#include "sluice/cuda/logprobs.hpp"
#include "sluice/research/qrita.hpp"
#include "sluice/select.hpp"

namespace sluice::bench {
namespace {

using research::QritaVariant;
using research::TruncationTable;
using HostRows = std::vector<std::vector<float>>;

// Half of the vocabulary far below, as entries that a model never uses: no Gaussian at all.
constexpr std::string_view kHalfUnused = "half_unused";

std::vector<float> RowOf(std::string_view kind, int64_t vocab, uint32_t index) {
  for (const Distribution distribution : kDistributions) {
    if (Name(distribution) == kind) return MakeRow(distribution, vocab, index);
  }
  std::vector<float> row = MakeRow(Distribution::kMid, vocab, index);
  for (size_t i = 0; i < row.size(); i += 2) row[i] -= row[i] < 3.0f ? 30.0f : 0.0f;
  return row;
}

HostRows MakeRows(std::string_view kind, int64_t vocab, int64_t rows) {
  HostRows made(static_cast<size_t>(rows));
  std::vector<std::thread> threads;
  const unsigned workers = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned worker = 0; worker < workers; ++worker) {
    threads.emplace_back([&, worker] {
      for (size_t r = worker; r < made.size(); r += workers) {
        made[r] = RowOf(kind, vocab, static_cast<uint32_t>(r));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return made;
}

std::vector<float> Flat(std::span<const std::vector<float>> rows) {
  std::vector<float> flat;
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return flat;
}

LogitsView ViewOf(const DeviceMemory<float>& logits, int64_t vocab) {
  return {logits.data(), logits.size() / vocab, vocab, vocab, DType::kF32, {DeviceKind::kCuda, 0}};
}

Cut ReferenceCut(const std::vector<float>& row, const SelectParams& params) {
  const int64_t vocab = static_cast<int64_t>(row.size());
  const LogitsView view{row.data(), 1, vocab, vocab, DType::kF32, {}};
  std::vector<std::byte> workspace(SelectWorkspaceBytes(view, Execution{}) + kWorkspaceAlignment);
  const size_t misaligned = reinterpret_cast<uintptr_t>(workspace.data()) % kWorkspaceAlignment;
  Cut cut;
  Select({view, {&params, 1}}, {&cut, 1}, {},
         {.workspace = std::span(workspace).subspan((kWorkspaceAlignment - misaligned) %
                                                    kWorkspaceAlignment)});
  return cut;
}

int WrongCuts(const HostRows& rows, const SelectParams& params, const std::vector<Cut>& cuts) {
  int wrong = 0;
  for (size_t r = 0; r < std::min<size_t>(cuts.size(), 16); ++r) {
    wrong += cuts[r] == ReferenceCut(rows[r], params) ? 0 : 1;
  }
  return wrong;
}

struct Task {
  const char* name;
  SelectParams params;
};
constexpr Task kTasks[] = {
    {"k50-p0.9", {.top_k = 50, .top_p = 0.9f}}, {"k50", {.top_k = 50}}, {"p0.9", {.top_p = 0.9f}}};

// Table 3: every variant on rows that truncation decides.
void Ablation(DeviceReport& report, int64_t vocab, int64_t batch, const HostRows& rows) {
  const DeviceMemory<float> master(Flat(std::span(rows).first(static_cast<size_t>(batch))));
  const DeviceMemory<float> logits(static_cast<size_t>(master.size()));
  const LogitsView view = ViewOf(logits, vocab);
  const size_t bytes = static_cast<size_t>(master.size()) * sizeof(float);
  const GraphTimer timer(master.data(), logits.data(), bytes, batch >= 128 ? 4 : 10);
  const DeviceMemory<uint32_t> largest(static_cast<size_t>(batch));
  double read = 1e30;
  for (const unsigned blocks : {1u, 2u, 4u, 8u, 16u, 64u}) {
    read = std::min(read, timer.Microseconds([&](cudaStream_t stream) {
      ReadKernel<<<dim3(blocks, static_cast<unsigned>(batch)), 1024, 0, stream>>>(
          reinterpret_cast<const uint4*>(logits.data()), static_cast<size_t>(vocab) / 4,
          largest.data());
    }));
  }

  const DeviceMemory<Cut> cuts(static_cast<size_t>(batch));
  for (const Task& task : kTasks) {
    const DeviceMemory<SelectParams> params(std::vector<SelectParams>{task.params});
    const cuda::RowParams row_params{{params.data(), 1}};
    double whole_method = 0;
    for (const QritaVariant variant :
         {QritaVariant::kQuaternary, QritaVariant::kOneTile, QritaVariant::kNoDup,
          QritaVariant::kForceFallback, QritaVariant::kNoTruncation, QritaVariant::kBinary,
          QritaVariant::kSortFinish, QritaVariant::kSort, QritaVariant::kAuto}) {
      const size_t memory = research::QritaWorkspaceBytes(view, variant);
      const DeviceMemory<std::byte> workspace(memory);
      const double us = timer.Microseconds([&](cudaStream_t stream) {
        research::SelectByQrita(view, row_params, {variant, {workspace.data(), workspace.size()}},
                                {cuts.data(), cuts.size()}, stream);
      });
      if (variant == QritaVariant::kQuaternary) whole_method = us;
      const int wrong = WrongCuts(rows, task.params, cuts.Get());
      const std::string name(research::QritaVariants()[static_cast<size_t>(variant)].name);
      report.Row(
          "{\"bench\": \"cuda_ablation\", \"task\": \"%s\", \"algorithm\": \"%s\", \"dtype\": "
          "\"float32\", \"vocab\": %lld, \"batch\": %lld, \"distribution\": \"mid\", \"ns\": %.0f, "
          "\"relative\": %.3f, \"floor_ns\": %.0f, \"workspace_bytes\": %zu, \"logits_bytes\": "
          "%zu, \"exact\": %s}",
          task.name, name.c_str(), static_cast<long long>(vocab), static_cast<long long>(batch),
          us * 1e3, us / whole_method, read * 1e3, memory, bytes, wrong == 0 ? "true" : "false");
      std::fprintf(stderr,
                   "%-9s %-15s B=%-4lld %9.2f us %7.2fx  floor %6.2f  %9zu bytes wrong %d\n",
                   task.name, name.c_str(), static_cast<long long>(batch), us, us / whole_method,
                   read, memory, wrong);
    }
  }

  // What reads a Cut, and a result.
  const SelectParams params_of_row{.top_k = 50, .top_p = 0.9f};
  const DeviceMemory<SelectParams> params(std::vector<SelectParams>{params_of_row});
  const DeviceMemory<NoiseKey> keys(std::vector<NoiseKey>{{7, 1}});
  const cuda::RowParams row_params{{params.data(), 1}, {keys.data(), 1}};
  const DeviceMemory<TokenResult> results(static_cast<size_t>(batch));
  const DeviceMemory<int64_t> offsets(static_cast<size_t>(batch) + 1);
  const DeviceMemory<int32_t> ids(static_cast<size_t>(batch) * 64);
  const DeviceMemory<uint64_t> weights(static_cast<size_t>(batch) * 64);
  RequireCuda(cudaMemcpy(logits.data(), master.data(), bytes, cudaMemcpyDeviceToDevice));
  cuda::Select(view, row_params, {cuts.data(), cuts.size()}, {}, nullptr);
  cuda::Sample(view, row_params, DrawMethod::kGumbel, {results.data(), results.size()}, nullptr);
  RequireCuda(cudaDeviceSynchronize());
  auto consumer = [&](const char* task, const std::function<void(cudaStream_t)>& call) {
    const double us = timer.Microseconds(call);
    report.Row(
        "{\"bench\": \"cuda_consumers\", \"task\": \"%s\", \"dtype\": \"float32\", \"vocab\": "
        "%lld, \"batch\": %lld, \"distribution\": \"mid\", \"ns\": %.0f, \"floor_ns\": %.0f}",
        task, static_cast<long long>(vocab), static_cast<long long>(batch), us * 1e3, read * 1e3);
    std::fprintf(stderr, "%-24s B=%-4lld %9.2f us  floor %6.2f\n", task,
                 static_cast<long long>(batch), us, read);
  };
  for (const CandidateOrder order : {CandidateOrder::kById, CandidateOrder::kByRank}) {
    consumer(order == CandidateOrder::kById ? "candidates-by-id" : "candidates-by-rank",
             [&](cudaStream_t stream) {
               cuda::CandidateOffsets({cuts.data(), cuts.size()}, 64,
                                      {offsets.data(), offsets.size()}, stream);
               cuda::Collect(view, row_params, {cuts.data(), cuts.size()}, order,
                             {{offsets.data(), offsets.size()},
                              {ids.data(), ids.size()},
                              {},
                              {weights.data(), weights.size()}},
                             stream);
             });
  }
  for (const LogprobMode mode :
       {LogprobMode::kRawLogprobs, LogprobMode::kProcessedLogprobs, LogprobMode::kRawLogits}) {
    const std::string task = "logprobs-" + std::string(Name(mode));
    consumer(task.c_str(), [&](cudaStream_t stream) {
      cuda::Logprobs(view, row_params, mode, {results.data(), results.size()}, {}, stream);
    });
  }
}

// The guess for p of truncation.cuh without a bound on its memory: does it hold the nucleus, and
// how many it gathers. It is lower than the table that Qrita has in vLLM; bench/qrita_guess.py
// compares them.
struct WideGuess {
  int hits = 0;
  double outliers = 0;
};

WideGuess GuessWithoutRoom(const HostRows& rows, float p) {
  const double q = p > 0.5f ? 1.0 - static_cast<double>(p) : static_cast<double>(p);
  double low = 0, high = 8;  // the quantile of N(0, 1), by bisection
  for (int step = 0; step < 60; ++step) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(middle / std::sqrt(2.0)) > q ? low : high) = middle;
  }
  double sigma = 1.0 + (p > 0.5f ? -low : low);
  sigma -= 0.25 * std::fabs(sigma);
  WideGuess guess;
  for (const std::vector<float>& row : rows) {
    double sum = 0, squares = 0, count = 0, max = -1e30;
    for (const float x : row) {
      if (!std::isfinite(x)) continue;
      sum += x;
      squares += static_cast<double>(x) * x;
      max = std::max(max, static_cast<double>(x));
      ++count;
    }
    const double mean = sum / count;
    const double threshold = mean + sigma * std::sqrt(squares / count - mean * mean);
    double mass = 0, above = 0;
    for (const float x : row) {
      const double weight = std::exp(static_cast<double>(x) - max);
      mass += weight;
      if (x < threshold) continue;
      above += weight;
      guess.outliers += 1.0 / static_cast<double>(rows.size());
    }
    guess.hits += above >= static_cast<double>(p) * mass ? 1 : 0;
  }
  return guess;
}

constexpr size_t kBatch = 128, kCalls = 4;

// Four calls on rows of their own with one table: truncation has learned nothing in the first, and
// what it has learned from the others in the last.
void HitRates(DeviceReport& report, int64_t vocab, std::string_view kind, const HostRows& rows) {
  for (const float p : {0.5f, 0.7f, 0.9f, 0.95f}) {
    const SelectParams params_of_row{.top_p = p};
    const DeviceMemory<SelectParams> params(std::vector<SelectParams>{params_of_row});
    const DeviceMemory<TruncationTable> table(std::vector<TruncationTable>{{}});
    const DeviceMemory<Cut> cuts(kBatch);
    int wrong = 0;
    double kept = 0;
    std::vector<uint64_t> hits = {0};
    for (size_t call = 0; call < kCalls; ++call) {
      const HostRows batch(rows.begin() + static_cast<int64_t>(call * kBatch),
                           rows.begin() + static_cast<int64_t>((call + 1) * kBatch));
      const DeviceMemory<float> logits(Flat(batch));
      const LogitsView view = ViewOf(logits, vocab);
      const DeviceMemory<std::byte> workspace(
          research::QritaWorkspaceBytes(view, QritaVariant::kQuaternary));
      research::SelectByQrita(
          view, {{params.data(), 1}},
          {QritaVariant::kQuaternary, {workspace.data(), workspace.size()}, {table.data(), 1}},
          {cuts.data(), cuts.size()}, nullptr);
      const std::vector<Cut> got = cuts.Get();
      for (const Cut& cut : got) kept += static_cast<double>(cut.count) / (kBatch * kCalls);
      wrong += WrongCuts(batch, params_of_row, got);
      hits.push_back(table.Get()[0].hits);
    }
    const HostRows first(rows.begin(), rows.begin() + kBatch);
    const WideGuess wide = GuessWithoutRoom(first, p);
    const double before = static_cast<double>(hits[1]) / kBatch;
    const double after = static_cast<double>(hits[kCalls] - hits[kCalls - 1]) / kBatch;
    report.Row(
        "{\"bench\": \"cuda_truncation\", \"task\": \"p%g\", \"dtype\": \"float32\", \"vocab\": "
        "%lld, \"batch\": %zu, \"distribution\": \"%s\", \"mean_kept\": %.1f, \"hit_rate_before\": "
        "%.3f, \"hit_rate_after\": %.3f, \"formula_hit_rate_unbounded\": %.3f, "
        "\"formula_outliers\": "
        "%.0f, \"exact\": %s}",
        static_cast<double>(p), static_cast<long long>(vocab), kBatch, std::string(kind).c_str(),
        kept, before, after, wide.hits / static_cast<double>(kBatch), wide.outliers,
        wrong == 0 ? "true" : "false");
    std::fprintf(
        stderr,
        "p%-4g %-12s kept %8.1f  hits before %.3f after %.3f  no bound %.3f with %.0f wrong "
        "%d\n",
        static_cast<double>(p), std::string(kind).c_str(), kept, before, after,
        wide.hits / static_cast<double>(kBatch), wide.outliers, wrong);
  }
}

HostRows ReadRows(const std::string& path, int64_t vocab) {
  HostRows rows(kBatch * kCalls, std::vector<float>(static_cast<size_t>(vocab)));
  std::ifstream file(path, std::ios::binary);
  for (std::vector<float>& row : rows) {
    const auto bytes = static_cast<std::streamsize>(row.size() * sizeof(float));
    if (!file.read(reinterpret_cast<char*>(row.data()), bytes)) {
      throw std::runtime_error(path + " has fewer than 512 rows");
    }
  }
  return rows;
}

struct Options {
  int64_t vocab = 128256;
  std::vector<int64_t> batches = {1, 32, 128};
  std::string rows_path;

  explicit Options(ProgramFlags& flags) {
    flags.Number("--vocab", vocab, {64, kMaxVocab}, "tokens of a row");
    flags.Number("--batch", batches, {1, 65535}, "rows of a call");
    flags.Text("--rows", rows_path, "FILE",
               "512 rows of fp32: only how often truncation decides these");
  }
};

void Run(const Options& options) {
  const auto& [vocab, batches, rows_path] = options;
  DeviceReport report(ThisGpu());
  if (!rows_path.empty()) {
    HitRates(report, vocab, "trace", ReadRows(rows_path, vocab));
    return;
  }
  const HostRows rows = MakeRows("mid", vocab, *std::max_element(batches.begin(), batches.end()));
  for (const int64_t batch : batches) Ablation(report, vocab, batch, rows);
  for (const std::string_view kind : {Name(Distribution::kPeaked), Name(Distribution::kMid),
                                      Name(Distribution::kFlat), kHalfUnused}) {
    HitRates(report, vocab, kind, MakeRows(kind, vocab, kBatch * kCalls));
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(
      argc, argv, "sluice_cuda_ablation",
      "Times the variants of Qrita's paper, and counts how often truncation decides.",
      sluice::bench::Run);
}
