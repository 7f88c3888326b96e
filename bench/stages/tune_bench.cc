#include "bench/stages/tune_bench.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "bench/stages/select_call.h"
#include "bench/support/row_timer.h"
#include "bench/support/rows.h"
#include "bench/support/turns.h"
#include "sluice/algorithm.hpp"

namespace sluice::bench {
namespace {

constexpr Distribution kTunedRows[] = {Distribution::kPeaked, Distribution::kMid,
                                       Distribution::kFlat, Distribution::kNormal};
constexpr SelectKind kKinds[] = {SelectKind::kTopK, SelectKind::kTopP, SelectKind::kTopKTopP,
                                 SelectKind::kOther};

std::vector<SelectAlgorithm> Algorithms() {
  std::vector<SelectAlgorithm> algorithms;
  for (const AlgorithmInfo& info : SelectAlgorithms()) {
    if (info.algorithm != SelectAlgorithm::kAuto) algorithms.push_back(info.algorithm);
  }
  return algorithms;
}

// Medians in nanoseconds of all algorithms on the rows of a store.
std::vector<double> TimesOn(RowStore& store, Backend backend, SelectKind kind,
                            const TuneOptions& options) {
  RowTimer timer(store);
  CallSetup setup{.params = TunedParams(kind), .backend = backend, .vocab = store.vocab()};
  const std::vector<TokenResult> expected = Expected(setup, store, 2);
  std::vector<CheckedCall> calls;
  for (const SelectAlgorithm algorithm : Algorithms()) {
    setup.algorithm = research::AlgorithmOf(algorithm);
    calls.emplace_back(setup, expected);
  }
  const CallBudget budget{store.rows(), options.budget_ms, 3};
  std::vector<Samples> samples = SamplesInTurns(calls, timer, budget, options.passes);
  std::vector<double> times;
  for (size_t i = 0; i < calls.size(); ++i) {
    calls[i].Compare();
    if (calls[i].different() > 0) throw std::runtime_error("a result is not the reference's");
    times.push_back(Summary(std::move(samples[i])).median);
  }
  return times;
}

// times: one vector a kind of rows, one element an algorithm.
std::vector<TunedAlgorithm> Ranked(const std::vector<std::vector<double>>& times) {
  const std::vector<SelectAlgorithm> algorithms = Algorithms();
  std::vector<TunedAlgorithm> ranked;
  for (size_t a = 0; a < algorithms.size(); ++a) {
    double log_sum = 0.0;
    double worst = 1.0;
    for (const std::vector<double>& of_kind : times) {
      log_sum += std::log(of_kind[a]);
      worst = std::max(worst, of_kind[a] / *std::min_element(of_kind.begin(), of_kind.end()));
    }
    ranked.push_back({algorithms[a], std::exp(log_sum / static_cast<double>(times.size())), worst});
  }
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const TunedAlgorithm& x, const TunedAlgorithm& y) { return x.ns < y.ns; });
  return ranked;
}

}  // namespace

const TunedAlgorithm& TunedCell::Winner() const {
  for (const TunedAlgorithm& tuned : ranked) {
    const bool is_near = tuned.ns <= kTolerance * ranked.front().ns;
    if (tuned.algorithm == SelectAlgorithm::kCertified && is_near) return tuned;
  }
  return ranked.front();
}

SelectParams TunedParams(SelectKind kind) {
  switch (kind) {
    case SelectKind::kTopK:
      return {.top_k = 50};
    case SelectKind::kTopP:
      return {.top_p = 0.9f};
    case SelectKind::kTopKTopP:
      return {.top_k = 50, .top_p = 0.9f};
    case SelectKind::kOther:
      return {.top_p = 0.95f, .min_p = 0.02f};
  }
  return {};
}

std::vector<TunedCell> RunTuneBench(const TuneOptions& options,
                                    const std::function<void(const std::string&)>& on_progress) {
  std::vector<TunedCell> cells;
  for (const int64_t vocab : options.vocabs) {
    const int64_t rows =
        std::clamp(kTunedElements / vocab, options.rows, std::max(options.rows, options.most_rows));
    RowStore store(vocab, rows, 0);
    // [backend and kind][kind of rows][algorithm]
    std::vector<std::vector<std::vector<double>>> times(options.backends.size() * kSelectKinds);
    for (const Distribution distribution : kTunedRows) {
      on_progress("V=" + std::to_string(vocab) + ", " + std::string(Name(distribution)));
      std::vector<std::vector<float>> sources;
      for (int64_t row = 0; row < rows; ++row) {
        sources.push_back(MakeRow(distribution, vocab, static_cast<uint32_t>(row)));
      }
      store.Fill(DType::kF32, sources);
      size_t cell = 0;
      for (const Backend backend : options.backends) {
        for (const SelectKind kind : kKinds) {
          times[cell++].push_back(TimesOn(store, backend, kind, options));
        }
      }
    }
    size_t cell = 0;
    for (const Backend backend : options.backends) {
      for (const SelectKind kind : kKinds) {
        cells.push_back({backend, kind, vocab, Ranked(times[cell++])});
      }
    }
  }
  const auto key = [](const TunedCell& cell) {
    return std::tuple(cell.backend, cell.kind, cell.vocab);
  };
  std::sort(cells.begin(), cells.end(),
            [&](const TunedCell& a, const TunedCell& b) { return key(a) < key(b); });
  return cells;
}

}  // namespace sluice::bench
