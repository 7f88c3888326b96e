#include "bench/stages/select_bench.h"

#include <algorithm>
#include <cstdlib>
#include <span>
#include <stdexcept>

#include "bench/stages/select_call.h"
#include "bench/support/row_timer.h"

namespace sluice::bench {
namespace {

class Bench {
 public:
  explicit Bench(const SelectBenchOptions& options)
      : options_(options),
        store_(options.vocab, options.rows, options.cold_bytes),
        timer_(store_),
        peer_memory_(options.vocab) {}

  Group Measure(Distribution distribution, DType dtype, std::span<const std::vector<float>> sources,
                const std::function<void(const std::string&)>& on_progress) {
    Group group{distribution, dtype, options_.vocab, store_.Fill(dtype, sources), true, {}};
    const SizeRange wanted = TargetNucleus(distribution, options_.vocab);
    // What is promised is promised of the row before its rounding.
    if (wanted.high > 0 && dtype == DType::kF32) {
      group.is_as_wanted = group.nucleus.least >= wanted.low && group.nucleus.most <= wanted.high;
    }
    for (const Task task : options_.tasks) {
      on_progress(std::string(Name(distribution)) + ", " + std::string(Name(dtype)) + ": " +
                  std::string(Name(task)));
      const std::vector<TokenResult> expected = Expected(
          SetupOf(task, Backend::kRef, research::Algorithm::kAuto), store_, options_.compared_rows);
      std::vector<PeerTiming> peers;
      for (const Peer& peer : PeersOf(task)) {
        if (IsLikeAModels(distribution)) CheckPeer(peer, task, expected.front());
        peers.push_back(MeasurePeer(peer));
      }
      const auto add = [&](Backend backend, research::Algorithm algorithm) {
        group.cells.push_back(MeasureCall(task, backend, algorithm, expected));
        group.cells.back().peers = peers;
      };
      for (const Backend backend : options_.backends) {
        if (backend == Backend::kRef) {
          add(backend, research::Algorithm::kAuto);
          continue;
        }
        for (const research::Algorithm algorithm : options_.algorithms) add(backend, algorithm);
      }
    }
    return group;
  }

 private:
  CallBudget SlowBudget() const {
    return {store_.rows(), options_.slow_call_budget_ms, options_.least_slow_calls};
  }

  CallSetup SetupOf(Task task, Backend backend, research::Algorithm algorithm) const {
    return {ParamsOf(task), Draws(task),    MethodOf(task), backend,
            algorithm,      store_.vocab(), store_.dtype()};
  }

  Cell MeasureCall(Task task, Backend backend, research::Algorithm algorithm,
                   const std::vector<TokenResult>& expected) {
    Cell cell{task, backend, algorithm, {}, {}, 0.0, 0, 0, {}};
    CheckedCall call(SetupOf(task, backend, algorithm), expected);
    const auto prepare = [&](const void* row, int64_t index) { call.Prepare(row, index); };
    const auto run = [&] { call.Run(); };
    const bool is_slow = backend == Backend::kRef || (algorithm != research::Algorithm::kAuto &&
                                                      algorithm != research::Algorithm::kCertified);
    const CallBudget budget = is_slow ? SlowBudget() : CallBudget{store_.rows()};
    timer_.Hot({2}, prepare, run);  // the first calls of a cell find its code and memory cold
    cell.hot = timer_.Hot(budget, prepare, run);
    cell.cold = timer_.Cold(budget, prepare, run);
    call.Compare();
    cell.compared = call.compared();
    cell.different = call.different();
    if (backend != Backend::kRef) {
      cell.reads = ReadsOf(call, store_, std::min(cell.hot.calls, options_.compared_rows)).mean;
    }
    return cell;
  }

  // What computes something else is no peer. Sums in fp32 are off by some tokens; rows in bf16 have
  // ties, all of which some peers keep.
  void CheckPeer(const Peer& peer, Task task, const TokenResult& expected) {
    if (Draws(task) || task == Task::kGreedy || store_.dtype() != DType::kF32) return;
    const auto row = Widened(store_.Hot(0), store_.dtype(), store_.vocab(), peer_memory_);
    const int64_t kept = peer.run(row, peer_memory_);
    const int64_t count = expected.cut.count;
    const int64_t slack = std::max<int64_t>(2, count / 50);
    if (std::abs(kept - count) <= slack) return;
    throw std::runtime_error(std::string(peer.name) + " keeps " + std::to_string(kept) +
                             " tokens for " + std::string(Name(task)) + ", not " +
                             std::to_string(count));
  }

  PeerTiming MeasurePeer(const Peer& peer) {
    const void* row = nullptr;
    const auto prepare = [&](const void* next, int64_t) { row = next; };
    const auto run = [&] {
      const auto widened = Widened(row, store_.dtype(), store_.vocab(), peer_memory_);
      Consume(static_cast<float>(peer.run(widened, peer_memory_)));
    };
    PeerTiming timing{peer.name, peer.hot_target, {}, {}};
    timer_.Hot({1}, prepare, run);
    timing.hot = timer_.Hot(SlowBudget(), prepare, run);
    timing.cold = timer_.Cold(SlowBudget(), prepare, run);
    return timing;
  }

  const SelectBenchOptions& options_;
  RowStore store_;
  RowTimer timer_;
  PeerMemory peer_memory_;
};

}  // namespace

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
