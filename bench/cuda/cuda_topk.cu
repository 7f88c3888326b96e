// Times topk on a GPU (cuda_topk_cells.h). Usage: sluice_cuda_topk --help.
#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/cuda/cuda_topk_cells.h"
#include "bench/cuda/this_gpu.cuh"
#include "bench/support/program_flags.h"
#include "topk/topk_plan.h"

namespace sluice::bench {
namespace {

enum class Guess : uint8_t { kHint, kSecant, kThreshold };

struct Options : DeviceTopkOptions {
  std::vector<std::string> names = {"normal"};  // of scores
  Guess guess_flag = Guess::kHint;

  explicit Options(ProgramFlags& flags) {
    using Size = std::optional<int32_t>;
    flags.Number("--columns", columns, {1, kMaxVocab}, "scores of a row");
    flags.Number("--batch", batches, {1, 65535}, "rows of a call");
    flags.Number("--k", ks, {1, kMaxVocab}, "of a row, the first so many");
    std::vector<std::string> all = NamesOf(kScores);
    all.emplace_back("all");
    flags.Names("--scores", names, all, "rows of these kinds");
    flags.Choice("--dtype", dtype, ByName(std::array{DType::kF32, DType::kBf16}), "of the scores");
    flags.Number(
        "--hint", hint_percent, {0, 100},
        "percent of the hinted indices that are of the answer; without it there is no hint");
    flags.Choice(
        "--guess", guess_flag,
        {{"hint", Guess::kHint}, {"secant", Guess::kSecant}, {"threshold", Guess::kThreshold}},
        "from a hint, or (threshold) from the call before");
    flags.Choice("--plans", all_plans, {{"chosen", false}, {"all", true}},
                 "PlanTopk's, or every one that the device takes");
    flags.Choice("--blocks", blocks,
                 {{"1", Size(1)}, {"2", Size(2)}, {"4", Size(4)}, {"8", Size(8)}},
                 "of a row, in place of the plan's");
    flags.Choice("--threads", threads, {{"512", Size(512)}, {"1024", Size(1024)}},
                 "of a block, in place of the plan's");
    Choices<Size> rooms = {{"0", Size(0)}};
    for (int32_t room = 1; room <= cuda::kMostCandidates; room *= 2) {
      rooms.emplace_back(std::to_string(room), room);
    }
    flags.Choice("--capacity", capacity, rooms,
                 "room for candidates, in place of the plan's; 0 is the definition");
  }
};

DeviceTopkOptions Chosen(const Options& flags) {
  DeviceTopkOptions options = flags;
  if (flags.guess_flag == Guess::kSecant) options.guess = cuda::TopkGuess::kSecant;
  options.carries_thresholds = flags.guess_flag == Guess::kThreshold;
  for (const NamedScores& named : kScores) {
    if (IsSelected(flags.names, named.name) || IsSelected(flags.names, "all")) {
      options.scores.push_back(named);
    }
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

void Run(const Options& flags) {
  const DeviceTopkOptions options = Chosen(flags);
  DeviceReport report(ThisGpu());
  const std::string dtype(Name(options.dtype));
  const std::string guess = GuessText(options);
  RunDeviceTopkBench(
      options,
      [&](const DeviceTopkCell& cell) {
        const std::string scores(cell.scores);
        const auto columns = static_cast<long long>(cell.columns);
        const auto rows = static_cast<long long>(cell.rows);
        const double floors = cell.us / cell.floor_us;
        report.Row(
            "{\"bench\": \"cuda\", \"task\": \"topk-%d\", \"guess\": \"%s\", \"backend\": "
            "\"cuda\", \"dtype\": "
            "\"%s\", \"n\": %lld, \"batch\": %lld, \"distribution\": \"%s\", \"ns\": %.0f, "
            "\"floor_ns\": %.0f, \"floors\": %.2f, \"exact\": %s, \"plan\": \"%dx%d\", "
            "\"way\": \"%s\", \"reads\": %d, \"rounds\": %d, \"candidates\": %d}",
            cell.k, guess.c_str(), dtype.c_str(), columns, rows, scores.c_str(), cell.us * 1e3,
            cell.floor_us * 1e3, floors, cell.wrong == 0 ? "true" : "false", cell.plan.blocks,
            cell.plan.threads, NameOf(cell.most.way), cell.most.reads, cell.most.rounds,
            cell.most.candidates);
        std::fprintf(
            stderr,
            "%-11s %-8s %-10s K=%-5d N=%-7lld B=%-4lld %dx%-4d %8.2f us floor %6.2f %6.2fx "
            "wrong %lld %s reads %d rounds %d cand %d\n",
            scores.c_str(), dtype.c_str(), guess.c_str(), cell.k, columns, rows, cell.plan.blocks,
            cell.plan.threads, cell.us, cell.floor_us, floors, static_cast<long long>(cell.wrong),
            NameOf(cell.most.way), cell.most.reads, cell.most.rounds, cell.most.candidates);
      },
      [](const std::string&) {});
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  return sluice::bench::RunProgram(argc, argv, "sluice_cuda_topk",
                                   "Times topk on a GPU beside one read of the scores.",
                                   sluice::bench::Run);
}
