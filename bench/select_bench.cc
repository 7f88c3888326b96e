#include "bench/select_bench.h"

#include <algorithm>
#include <memory>
#include <new>
#include <span>

#include "bench/floor.h"
#include "bench/peers.h"
#include "sluice/draw.hpp"

namespace sluice::bench {
namespace {

// A value that the compiler cannot see through: what only goes here is still computed.
volatile float g_sink;

// Calls of one task on one backend, one row at a time, with everything prepared beforehand.
class SelectCall {
 public:
  SelectCall(Task task, Backend backend, int64_t vocab, DType dtype)
      : draws_(Draws(task)), params_(ParamsOf(task)) {
    view_ = {nullptr, 1, vocab, vocab, dtype, {}};
    execution_.backend = backend;
    // The functions check the view before they answer, so it needs some address that is not null.
    view_.data = this;
    const size_t bytes = SelectWorkspaceBytes(view_, execution_);
    workspace_.resize(bytes + kWorkspaceAlignment);
    void* start = workspace_.data();
    size_t space = workspace_.size();
    std::align(kWorkspaceAlignment, bytes, start, space);
    execution_.workspace = {static_cast<std::byte*>(start), bytes};
  }

  // Rows draw at positions of their own, each always at the same.
  void Prepare(const void* row, int64_t index) {
    view_.data = row;
    key_.position = static_cast<uint32_t>(index);
    input_ = {view_, {&params_, 1}, {&key_, 1}, {}};
    result_ = {};
  }
  void Run() {
    if (draws_) {
      Sample(input_, DrawMethod::kGumbel, {&result_, 1}, execution_);
    } else {
      Select(input_, {&result_.cut, 1}, {}, execution_);
    }
  }
  const TokenResult& result() const { return result_; }

 private:
  bool draws_;
  SelectParams params_;
  NoiseKey key_ = {.seed = 2024, .position = 0, .choice = 0};
  LogitsView view_;
  SelectInput input_;
  Execution execution_;
  std::vector<std::byte> workspace_;
  TokenResult result_;
};

bool AreSame(const TokenResult& a, const TokenResult& b) {
  return a.id == b.id && a.status == b.status && a.cut == b.cut;
}

class Bench {
 public:
  explicit Bench(const SelectBenchOptions& options)
      : options_(options),
        store_(options.vocab, options.rows, options.cold_bytes),
        peer_memory_(options.vocab) {}

  Group Measure(Distribution distribution, DType dtype, std::span<const std::vector<float>> sources,
                const std::function<void(const std::string&)>& on_progress) {
    Group group{distribution, dtype, options_.vocab, {}, {}};
    group.nucleus = store_.Fill(distribution, dtype, sources);
    for (const Task task : options_.tasks) {
      on_progress(std::string(Name(distribution)) + ", " + std::string(Name(dtype)) + ": " +
                  std::string(Name(task)));
      const std::vector<TokenResult> expected = Expected(task);
      std::vector<PeerTiming> peers;
      for (const Peer& peer : PeersOf(task)) peers.push_back(MeasurePeer(peer));
      for (const Backend backend : options_.backends) {
        group.cells.push_back(MeasureBackend(task, backend, expected));
        group.cells.back().peers = peers;
      }
    }
    return group;
  }

 private:
  void Read(const void* row) const { g_sink = RowMax(row, store_.dtype(), store_.vocab()); }

  // Calls prepare(row, index) and then times run(), for `calls` rows or until the budget is used up
  // (0: none).
  template <typename Prepare, typename Run>
  Timing Hot(int64_t calls, double budget_ms, const Prepare& prepare, const Run& run) {
    return Repeat(calls, budget_ms, [&](int64_t call, double& floor) {
      const int64_t index = call % store_.rows();
      const void* const row = store_.Hot(index);
      Read(row);
      Read(row);
      floor = TimeOf([&] { Read(row); });
      prepare(row, index);
      Read(row);
      Read(row);
      return TimeOf(run);
    });
  }
  template <typename Prepare, typename Run>
  Timing Cold(int64_t calls, double budget_ms, const Prepare& prepare, const Run& run) {
    return Repeat(calls, budget_ms, [&](int64_t, double& floor) {
      const RowStore::ColdPair pair = store_.NextCold();
      prepare(pair.for_call, pair.row);
      floor = TimeOf([&] { Read(pair.for_floor); });
      return TimeOf(run);
    });
  }

  template <typename Measurement>
  Timing Repeat(int64_t calls, double budget_ms, const Measurement& measure) const {
    std::vector<double> times;
    std::vector<double> floors;
    double used = 0.0;
    for (int64_t call = 0; call < calls; ++call) {
      double floor = 0.0;
      times.push_back(measure(call, floor));
      floors.push_back(floor);
      used += times.back();
      if (budget_ms > 0.0 && used > budget_ms * 1e6 && call + 1 >= options_.least_slow_calls) break;
    }
    return Summary(std::move(times), std::move(floors));
  }

  // What the reference backend says about the first rows.
  std::vector<TokenResult> Expected(Task task) {
    std::vector<TokenResult> expected;
    SelectCall call(task, Backend::kRef, store_.vocab(), store_.dtype());
    for (int64_t row = 0; row < std::min(options_.compared_rows, store_.rows()); ++row) {
      call.Prepare(store_.Hot(row), row);
      call.Run();
      expected.push_back(call.result());
    }
    return expected;
  }

  Cell MeasureBackend(Task task, Backend backend, const std::vector<TokenResult>& expected) {
    Cell cell{task, backend, {}, {}, 0, 0, {}};
    SelectCall call(task, backend, store_.vocab(), store_.dtype());
    // A result is looked at when the next call is prepared, outside of both clocks.
    int64_t pending = -1;
    const auto compare = [&] {
      if (pending >= 0 && pending < std::ssize(expected)) {
        ++cell.compared;
        const bool is_same = AreSame(call.result(), expected[static_cast<size_t>(pending)]);
        cell.different += is_same ? 0 : 1;
      }
      pending = -1;
    };
    const auto prepare = [&](const void* row, int64_t index) {
      compare();
      call.Prepare(row, index);
      pending = index;
    };
    const auto run = [&] { call.Run(); };
    const double budget = backend == Backend::kRef ? options_.slow_call_budget_ms : 0.0;
    Hot(2, 0.0, prepare, run);  // the first calls of a cell find its code and memory cold
    cell.hot = Hot(store_.rows(), budget, prepare, run);
    cell.cold = Cold(store_.rows(), budget, prepare, run);
    compare();
    return cell;
  }

  PeerTiming MeasurePeer(const Peer& peer) {
    const void* row = nullptr;
    const auto prepare = [&](const void* next, int64_t) { row = next; };
    const auto run = [&] {
      const auto widened = Widened(row, store_.dtype(), store_.vocab(), peer_memory_);
      g_sink = static_cast<float>(peer.run(widened, peer_memory_));
    };
    const double budget = options_.slow_call_budget_ms;
    PeerTiming timing{peer.name, peer.hot_target, {}, {}};
    Hot(1, 0.0, prepare, run);
    timing.hot = Hot(store_.rows(), budget, prepare, run);
    timing.cold = Cold(store_.rows(), budget, prepare, run);
    return timing;
  }

  const SelectBenchOptions& options_;
  RowStore store_;
  PeerMemory peer_memory_;
};

double MedianOf(std::vector<double>& sorted) {
  std::sort(sorted.begin(), sorted.end());
  const size_t n = sorted.size();
  return n == 0 ? 0.0 : 0.5 * (sorted[(n - 1) / 2] + sorted[n / 2]);
}

}  // namespace

Timing Summary(std::vector<double> times, std::vector<double> floors) {
  Timing timing;
  timing.calls = std::ssize(times);
  timing.median = MedianOf(times);
  timing.floor = MedianOf(floors);
  const size_t kept = times.size() - times.size() / 100;
  for (size_t i = 0; i < kept; ++i) timing.mean += times[i] / static_cast<double>(kept);
  return timing;
}

SelectBenchOptions QuickOptions() {
  SelectBenchOptions options;
  options.rows = 4;
  options.cold_bytes = size_t{8} << 20;
  options.compared_rows = 2;
  options.slow_call_budget_ms = 1.0;
  options.least_slow_calls = 1;
  return options;
}

void RunSelectBench(const SelectBenchOptions& options,
                    const std::function<void(const Group&)>& on_group,
                    const std::function<void(const std::string&)>& on_progress) {
  Bench bench(options);
  for (const Distribution distribution : options.distributions) {
    on_progress(std::string(Name(distribution)) + ": making rows");
    std::vector<std::vector<float>> sources;
    for (int64_t r = 0; r < options.rows; ++r) {
      sources.push_back(MakeRow(distribution, options.vocab, static_cast<uint32_t>(r)));
    }
    for (const DType dtype : options.dtypes) {
      on_group(bench.Measure(distribution, dtype, sources, on_progress));
    }
  }
}

}  // namespace sluice::bench
