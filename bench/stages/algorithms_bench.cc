#include "bench/stages/algorithms_bench.h"

#include <algorithm>
#include <span>
#include <utility>

#include "bench/stages/peers.h"
#include "bench/stages/select_call.h"
#include "bench/support/row_timer.h"
#include "bench/support/turns.h"
#include "sluice/research/algorithms.hpp"

namespace sluice::bench {
namespace {

struct RankedTask {
  std::string_view name;
  SelectParams params;
  std::vector<Peer> peers;
};

std::vector<RankedTask> TasksOf(const AlgorithmsOptions& options) {
  if (options.params.has_value()) return {{"params", *options.params, {}}};
  std::vector<RankedTask> tasks;
  for (const Task task : {Task::kTopP, Task::kTop50}) {
    tasks.push_back({Name(task), ParamsOf(task), PeersOf(task)});
  }
  return tasks;
}

// All algorithms, a pass over the rows each in turns.
std::vector<RankedCall> RankedCalls(CallSetup setup, std::span<const TokenResult> expected,
                                    RowTimer& timer, const RowStore& store,
                                    const AlgorithmsOptions& options) {
  std::vector<CheckedCall> calls;
  for (const research::AlgorithmEntry& info : research::Algorithms()) {
    setup.algorithm = info.algorithm;
    calls.emplace_back(setup, expected);
  }
  const CallBudget budget{options.rows, options.slow_budget_ms, options.rows};
  std::vector<Samples> samples = SamplesInTurns(calls, timer, budget, options.passes);
  std::vector<RankedCall> ranked;
  for (size_t i = 0; i < calls.size(); ++i) {
    CheckedCall& call = calls[i];
    call.Compare();
    const int64_t compared = call.compared();
    const int64_t different = call.different();
    const RowReads reads = ReadsOf(call, store, options.rows);
    call.Prepare(store.Hot(0), 0);
    ranked.push_back({research::Algorithms()[i].name, false, Summary(std::move(samples[i])), reads,
                      research::RanBy(research::Algorithms()[i].algorithm, call.Work()), compared,
                      different});
  }
  return ranked;
}

}  // namespace

Distribution MixedKind(int64_t row) {
  // Every place once in 20 rows, and no long runs of one kind that a branch predictor would learn.
  const int64_t place = row * 7 % 20;
  return place < 10 ? Distribution::kPeaked : place < 17 ? Distribution::kMid : Distribution::kFlat;
}

void RunAlgorithmsBench(const AlgorithmsOptions& options,
                        const std::function<void(const Ranking&)>& on_ranking,
                        const std::function<void(const std::string&)>& on_progress) {
  on_progress("making rows");
  std::vector<std::vector<float>> sources = options.given_rows;
  for (int64_t row = std::ssize(sources); row < options.rows; ++row) {
    sources.push_back(MakeRow(MixedKind(row), options.vocab, static_cast<uint32_t>(row)));
  }
  RowStore store(options.vocab, options.rows, 0);
  const NucleusSizes nucleus = store.Fill(DType::kF32, sources);
  RowTimer timer(store);
  PeerMemory memory(options.vocab);
  const CallBudget budget{options.rows * options.passes, options.slow_budget_ms, options.rows};

  for (const RankedTask& task : TasksOf(options)) {
    CallSetup setup{.params = task.params, .vocab = options.vocab};
    const std::vector<TokenResult> expected = Expected(setup, store, options.rows);
    std::vector<RankedCall> peers;
    for (const Peer& peer : task.peers) {
      on_progress(std::string(task.name) + ": " + std::string(peer.name));
      const void* row = nullptr;
      const auto prepare = [&](const void* next, int64_t) { row = next; };
      const auto run = [&] {
        const auto values = Widened(row, DType::kF32, options.vocab, memory);
        Consume(static_cast<float>(peer.run(values, memory)));
      };
      timer.Hot({1}, prepare, run);
      peers.push_back({peer.name, true, timer.Hot(budget, prepare, run), {}});
    }
    for (const Backend backend : options.backends) {
      Ranking ranking{task.name, backend, nucleus, peers};
      setup.backend = backend;
      on_progress(std::string(task.name) + ": algorithms");
      for (const RankedCall& call : RankedCalls(setup, expected, timer, store, options)) {
        ranking.calls.push_back(call);
      }
      std::stable_sort(
          ranking.calls.begin(), ranking.calls.end(),
          [](const RankedCall& a, const RankedCall& b) { return a.timing.mean < b.timing.mean; });
      on_ranking(ranking);
    }
  }
}

}  // namespace sluice::bench
