// Times topk on a GPU (cuda_topk_cells.h). Usage:
// sluice_cuda_topk [--columns N]... [--batch B]... [--k K]... [--scores NAME]... [--dtype
// float32|bfloat16] [--hint PERCENT] [--guess hint|secant|threshold] [--plans all] [--blocks N]
// [--threads N]
// [--capacity N]; prints a JSON object.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "bench/cuda_topk_cells.h"
#include "bench/environment.h"
#include "bench/graph_timer.cuh"

namespace sluice::bench {
namespace {

DeviceTopkOptions OptionsFrom(int argc, char** argv) {
  DeviceTopkOptions options;
  std::vector<int64_t> columns, batches;
  std::vector<int32_t> ks;
  std::vector<std::string> scores;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--columns") columns.push_back(std::atoll(argv[i + 1]));
    if (flag == "--batch") batches.push_back(std::atoll(argv[i + 1]));
    if (flag == "--k") ks.push_back(std::atoi(argv[i + 1]));
    if (flag == "--scores") scores.push_back(value);
    if (flag == "--dtype" && value == "bfloat16") options.dtype = DType::kBf16;
    if (flag == "--hint") options.hint_percent = std::atof(argv[i + 1]);
    if (flag == "--guess" && value == "secant") options.guess = cuda::TopkGuess::kSecant;
    if (flag == "--guess" && value == "threshold") options.carries_thresholds = true;
    if (flag == "--plans") options.all_plans = true;
    if (flag == "--blocks") options.blocks = std::atoi(argv[i + 1]);
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--capacity") options.capacity = std::atoi(argv[i + 1]);
  }
  if (!columns.empty()) options.columns = columns;
  if (!batches.empty()) options.batches = batches;
  if (!ks.empty()) options.ks = ks;
  if (scores.empty()) scores = {"normal"};
  for (const NamedScores& named : kScores) {
    const bool is_wanted = std::find(scores.begin(), scores.end(), named.name) != scores.end();
    if (is_wanted || scores[0] == "all") options.scores.push_back(named);
  }
  return options;
}

const char* NameOf(cuda::TopkWay way) {
  return way == cuda::TopkWay::kCandidates ? "candidates"
         : way == cuda::TopkWay::kPlateau  ? "plateau"
                                           : "definition";
}

// What was guessed from: "sample", "hint 44", "secant 44", "threshold".
std::string GuessText(const DeviceTopkOptions& options) {
  if (options.carries_thresholds) return "threshold";
  if (options.hint_percent < 0) return "sample";
  char text[32];
  std::snprintf(text, sizeof(text), "%s %g",
                options.guess == cuda::TopkGuess::kSecant ? "secant" : "hint",
                options.hint_percent);
  return text;
}

void Run(int argc, char** argv) {
  const DeviceTopkOptions options = OptionsFrom(argc, argv);
  const Environment environment = ThisEnvironment();
  cudaDeviceProp device;
  RequireCuda(cudaGetDeviceProperties(&device, 0));
  std::printf(
      "{\"env\": {\"gpu\": \"%s\", \"processors\": %d, \"l2_bytes\": %d, \"cpu\": \"%s\", "
      "\"compiler\": \"%s\", \"os\": \"%s\"}, \"commit\": \"%s\", \"rows\": [",
      device.name, device.multiProcessorCount, device.l2CacheSize, environment.cpu.c_str(),
      environment.compiler.c_str(), environment.os.c_str(), environment.commit.c_str());
  const char* separator = "\n";
  const std::string dtype(Name(options.dtype));
  const std::string guess = GuessText(options);
  RunDeviceTopkBench(
      options,
      [&](const DeviceTopkCell& cell) {
        const std::string scores(cell.scores);
        const auto columns = static_cast<long long>(cell.columns);
        const auto rows = static_cast<long long>(cell.rows);
        const double floors = cell.us / cell.floor_us;
        std::printf(
            "%s{\"bench\": \"cuda\", \"task\": \"topk-%d\", \"guess\": \"%s\", \"backend\": "
            "\"cuda\", \"dtype\": "
            "\"%s\", \"n\": %lld, \"batch\": %lld, \"distribution\": \"%s\", \"ns\": %.0f, "
            "\"floor_ns\": %.0f, \"floors\": %.2f, \"exact\": %s, \"plan\": \"%dx%d\", "
            "\"way\": \"%s\", \"reads\": %d, \"rounds\": %d, \"candidates\": %d}",
            separator, cell.k, guess.c_str(), dtype.c_str(), columns, rows, scores.c_str(),
            cell.us * 1e3, cell.floor_us * 1e3, floors, cell.wrong == 0 ? "true" : "false",
            cell.plan.blocks, cell.plan.threads, NameOf(cell.most.way), cell.most.reads,
            cell.most.rounds, cell.most.candidates);
        std::fprintf(
            stderr,
            "%-11s %-8s %-10s K=%-5d N=%-7lld B=%-4lld %dx%-4d %8.2f us floor %6.2f %6.2fx "
            "wrong %lld %s reads %d rounds %d cand %d\n",
            scores.c_str(), dtype.c_str(), guess.c_str(), cell.k, columns, rows, cell.plan.blocks,
            cell.plan.threads, cell.us, cell.floor_us, floors, static_cast<long long>(cell.wrong),
            NameOf(cell.most.way), cell.most.reads, cell.most.rounds, cell.most.candidates);
        separator = ",\n";
      },
      [](const std::string&) {});
  std::printf("\n]}\n");
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    sluice::bench::Run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice_cuda_topk: %s\n", error.what());
    return 1;
  }
}
