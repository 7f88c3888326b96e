#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/stages/topk_bench.h"
#include "bench/support/floor.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/npy_file.h"
#include "cli/table.h"
#include "semantics/widen.h"
#include "sluice/error.hpp"
#ifdef SLUICE_HAS_CUDA
#include "bench/cuda/cuda_topk_cells.h"
#endif

namespace sluice::cli {
namespace {

using bench::TopkCell;

std::vector<bench::NamedScores> ChosenScores(const std::vector<std::string>& names) {
  std::vector<bench::NamedScores> chosen;
  for (const bench::NamedScores& named : bench::kScores) {
    const bool is_named = std::find(names.begin(), names.end(), named.name) != names.end();
    if (names.empty() || is_named) chosen.push_back(named);
  }
  return chosen;
}

// The first rows of a file, in the order of the steps.
std::vector<std::vector<float>> StepsOf(const std::string& path, int64_t most) {
  NpyFile file(path);
  std::vector<std::vector<float>> steps;
  for (int64_t r = 0; r < std::min(most, file.rows()); ++r) {
    const std::vector<std::byte> bytes = file.ReadRow(r);
    std::vector<float>& row = steps.emplace_back();
    for (int64_t i = 0; i < file.vocab(); ++i) {
      row.push_back(semantics::Load(bytes.data(), file.dtype(), i));
    }
    if (std::any_of(row.begin(), row.end(), [](float x) { return std::isnan(x); })) {
      throw Error(ErrorCode::kInvalidValue, path + ": row " + Number(r), "NaN", "scores");
    }
  }
  return steps;
}

std::string TaskOf(int32_t k) { return "topk-" + Number(k); }
std::string DTypeText(DType dtype) { return dtype == DType::kBf16 ? "bf16" : "fp32"; }

class CpuReport {
 public:
  void Add(const TopkCell& cell) {
    cells_.push_back(cell);
    different_ += cell.different;
  }
  int64_t different() const { return different_; }

  void Print(std::ostream& out, const Terminal& terminal, bool shows_targets) const {
    Table table("llrlllrlrrlrrl");
    if (!shows_targets) table.Hide({10, 13});
    table.Add({"scores", "task", "N", "dtype", "backend", "hint", "overlap", "exact", "hot us",
               "floor", "target", "cold us", "floor", "target"},
              Style::kHeading);
    for (const TopkCell& cell : cells_) {
      const auto target = bench::TargetOf(cell);
      table.Add(
          {std::string(cell.scores), TaskOf(cell.k), Number(cell.columns), DTypeText(cell.dtype),
           std::string(NameOf(cell.backend)), cell.hint,
           cell.hint == "none" ? "" : Fixed(100 * cell.overlap, 1) + " %",
           cell.different == 0 ? "yes" : "NO", Micros(cell.hot.median),
           Times(cell.hot.TimesFloor()), target ? Met(cell.hot.TimesFloor(), target->hot) : "",
           Micros(cell.cold.median), Times(cell.cold.TimesFloor()),
           target ? Met(cell.cold.TimesFloor(), target->cold) : ""},
          cell.backend == Backend::kRef ? Style::kFaint : Style::kPlain);
    }
    table.Print(out, terminal);
    out << '\n';
  }

  void WriteJson(JsonWriter& json, JsonFile& file) const {
    for (const TopkCell& cell : cells_) {
      for (const bool is_hot : {true, false}) {
        const bench::Timing& timing = is_hot ? cell.hot : cell.cold;
        file.NewLine();
        json.Object([&] {
          json.Key("bench").Value("topk");
          json.Key("task").Value(TaskOf(cell.k));
          json.Key("backend").Value(NameOf(cell.backend));
          json.Key("dtype").Value(Name(cell.dtype));
          json.Key("n").Value(cell.columns);
          json.Key("batch").Value(1);
          json.Key("distribution").Value(cell.scores);
          json.Key("hint").Value(cell.hint);
          json.Key("overlap").Value(cell.overlap);
          json.Key("cache").Value(is_hot ? "hot" : "cold");
          json.Key("calls").Value(timing.calls);
          json.Key("ns").Value(timing.median);
          json.Key("mean_ns").Value(timing.mean);
          json.Key("floor_ns").Value(timing.floor);
          json.Key("floors").Value(timing.TimesFloor());
          json.Key("exact").Value(cell.different == 0 && cell.compared > 0);
        });
      }
    }
  }

 private:
  static std::string Met(double reached, double wanted) {
    return Short(wanted) + (reached <= wanted ? " met" : " missed");
  }

  std::vector<TopkCell> cells_;
  int64_t different_ = 0;
};

#ifdef SLUICE_HAS_CUDA
std::string_view NameOf(cuda::TopkWay way) {
  return way == cuda::TopkWay::kCandidates ? "candidates"
         : way == cuda::TopkWay::kPlateau  ? "plateau"
                                           : "definition";
}

class DeviceReport {
 public:
  explicit DeviceReport(DType dtype) : dtype_(dtype) {}

  void Add(const bench::DeviceTopkCell& cell) {
    cells_.push_back(cell);
    different_ += cell.wrong;
  }
  int64_t different() const { return different_; }

  void Print(std::ostream& out, const Terminal& terminal) const {
    Table table("llrrllrrlr");
    table.Add({"scores", "task", "N", "rows", "plan", "exact", "us", "floor", "way", "reads"},
              Style::kHeading);
    for (const bench::DeviceTopkCell& cell : cells_) {
      table.Add({std::string(cell.scores), TaskOf(cell.k), Number(cell.columns), Number(cell.rows),
                 PlanText(cell), cell.wrong == 0 ? "yes" : "NO", Short(cell.us),
                 Times(cell.us / cell.floor_us), std::string(NameOf(cell.most.way)),
                 Number(cell.most.reads)});
    }
    table.Print(out, terminal);
    out << '\n';
  }

  void WriteJson(JsonWriter& json, JsonFile& file) const {
    for (const bench::DeviceTopkCell& cell : cells_) {
      file.NewLine();
      json.Object([&] {
        json.Key("bench").Value("topk");
        json.Key("task").Value(TaskOf(cell.k));
        json.Key("backend").Value("cuda");
        json.Key("gpu").Value(bench::DeviceName());
        json.Key("dtype").Value(Name(dtype_));
        json.Key("n").Value(cell.columns);
        json.Key("batch").Value(cell.rows);
        json.Key("distribution").Value(cell.scores);
        json.Key("hint").Value("none");
        json.Key("ns").Value(1e3 * cell.us);
        json.Key("floor_ns").Value(1e3 * cell.floor_us);
        json.Key("floors").Value(cell.us / cell.floor_us);
        json.Key("plan").Value(PlanText(cell));
        json.Key("way").Value(NameOf(cell.most.way));
        json.Key("reads").Value(int64_t{cell.most.reads});
        json.Key("exact").Value(cell.wrong == 0);
      });
    }
  }

 private:
  static std::string PlanText(const bench::DeviceTopkCell& cell) {
    return Number(cell.plan.blocks) + "x" + Number(cell.plan.threads);
  }

  DType dtype_;
  std::vector<bench::DeviceTopkCell> cells_;
  int64_t different_ = 0;
};
#endif

}  // namespace

void RunBenchTopk(const BenchTopkOptions& options, std::ostream& out, const Terminal& terminal) {
  bench::TopkBenchOptions run;
  run.scores = ChosenScores(options.scores);
  run.columns = options.columns;
  run.ks = options.ks;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const auto& names = options.dtypes;
    if (std::find(names.begin(), names.end(), DTypeText(dtype)) != names.end()) {
      run.dtypes.push_back(dtype);
    }
  }
  std::vector<std::string> names = options.backends;
  const bool wants_cuda = names.empty() || std::erase(names, "cuda") > 0;
  const bool wants_cpu = options.backends.empty() || !names.empty();
  if (wants_cpu) run.backends = ChosenBackends(names);
  if (options.is_quick) {
    run.rows = 2;
    run.calls = 4;
    run.cold_bytes = size_t{8} << 20;
    run.slow_call_budget_ms = 1.0;
  }
  if (!options.rows_path.empty()) run.steps = StepsOf(options.rows_path, options.steps);
  JsonFile file(options.json_path);
  PrintEnvironment(out,
                   "topk for scores, one thread, a row a call. Floor: one streaming read of the "
                   "row (" +
                       std::string(bench::RowMaxInstructions()) +
                       "), measured next to every call; all are medians.\nOverlap: how much of "
                       "the hint is in the answer; the CPU makes no use of a hint.",
                   options.is_quick);
  const Progress progress;
  const auto show = [&](const std::string& next) { progress.Show(next); };
  CpuReport cpu;
  if (wants_cpu) {
    bench::RunTopkBench(run, [&](const TopkCell& cell) { cpu.Add(cell); }, show);
    progress.Clear();
    cpu.Print(out, terminal, options.shows_targets);
  }
  int64_t different = cpu.different();
#ifdef SLUICE_HAS_CUDA
  const std::string device = bench::DeviceName();
  if (device.empty() && options.backends == std::vector<std::string>{"cuda"}) {
    throw Error(ErrorCode::kUnavailable, "backend", "cuda", "no device was found");
  }
  std::vector<DeviceReport> reports;
  for (const DType dtype : run.dtypes) {
    if (!wants_cuda || device.empty() || !run.steps.empty()) break;
    bench::DeviceTopkOptions on_device;
    on_device.scores = run.scores;
    on_device.dtype = dtype;
    on_device.ks = run.ks;
    on_device.columns = run.columns;
    if (options.is_quick) on_device.batches = {1, 4};
    DeviceReport& report = reports.emplace_back(dtype);
    bench::RunDeviceTopkBench(
        on_device, [&](const bench::DeviceTopkCell& cell) { report.Add(cell); }, show);
    progress.Clear();
    out << terminal.Styled(device + ", " + DTypeText(dtype), Style::kHeading)
        << ": by graph replay, floor one read of the scores\n";
    report.Print(out, terminal);
    different += report.different();
  }
#else
  if (wants_cuda && !options.backends.empty()) {
    throw Error(ErrorCode::kUnavailable, "backend", "cuda", "built without CUDA");
  }
#endif
  file.Write([&](JsonWriter& json) {
    cpu.WriteJson(json, file);
#ifdef SLUICE_HAS_CUDA
    for (const DeviceReport& report : reports) report.WriteJson(json, file);
#endif
  });
  if (different > 0) {
    out.flush();
    throw std::runtime_error("timed results that are not the total order's: " + Number(different));
  }
}

}  // namespace sluice::cli
