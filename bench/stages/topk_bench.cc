#include "bench/stages/topk_bench.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>
#include <span>

#include "bench/support/row_timer.h"
#include "sluice/topk.hpp"

namespace sluice::bench {
namespace {

constexpr double kOverlaps[] = {1.5, 44, 90};  // percent, of hints that are made

// The inputs of a call and its expected answer, a row each.
struct TopkRows {
  std::string hint_name;
  std::vector<std::vector<int32_t>> hints;  // empty: none
  std::span<const std::vector<int32_t>> answers;
  bool carries_threshold = false;  // from call to call
};

class TopkCall {
 public:
  TopkCall(const RowStore& store, int32_t k, Backend backend, const TopkRows& rows)
      : rows_(rows), indices_(static_cast<size_t>(k)), status_(1) {
    input_.scores = {this, 1, store.vocab(), store.vocab(), store.dtype(), {}};
    input_.k = k;
    execution_.backend = backend;
    const size_t bytes = TopkWorkspaceBytes(input_, execution_);
    workspace_.resize(bytes + kWorkspaceAlignment);
    void* start = workspace_.data();
    size_t space = workspace_.size();
    std::align(kWorkspaceAlignment, bytes, start, space);
    execution_.workspace = {static_cast<std::byte*>(start), bytes};
  }

  void Prepare(const void* row, int64_t index) {
    Compare();
    input_.scores.data = row;
    pending_ = index;
    if (rows_.carries_threshold) input_.thresholds = {&threshold_, 1};
    if (rows_.hints.empty()) return;
    input_.hint = rows_.hints[static_cast<size_t>(index)];
    input_.hint_columns = static_cast<int32_t>(input_.hint.size());
  }
  void Run() { Topk(input_, indices_, {}, status_, execution_); }

  // The last answer, if it was not yet; outside of every clock.
  void Compare() {
    if (pending_ < 0) return;
    const std::vector<int32_t>& answer = rows_.answers[static_cast<size_t>(pending_)];
    const bool is_same =
        status_[0] == RowStatus::kOk && std::equal(answer.begin(), answer.end(), indices_.begin());
    ++compared_;
    different_ += is_same ? 0 : 1;
    pending_ = -1;
  }
  int64_t compared() const { return compared_; }
  int64_t different() const { return different_; }

 private:
  const TopkRows& rows_;
  TopkInput input_;
  Execution execution_;
  std::vector<std::byte> workspace_;
  std::vector<int32_t> indices_;
  std::vector<RowStatus> status_;
  float threshold_ = std::numeric_limits<float>::quiet_NaN();
  int64_t pending_ = -1;
  int64_t compared_ = 0;
  int64_t different_ = 0;
};

double OverlapOf(const TopkRows& rows) {
  double share = 0;
  for (size_t r = 0; r < rows.hints.size(); ++r) {
    std::vector<int32_t> hint = rows.hints[r];
    std::sort(hint.begin(), hint.end());
    std::vector<int32_t> both;
    std::set_intersection(hint.begin(), hint.end(), rows.answers[r].begin(), rows.answers[r].end(),
                          std::back_inserter(both));
    share += static_cast<double>(both.size()) / static_cast<double>(rows.answers[r].size());
  }
  return rows.hints.empty() ? 0 : share / static_cast<double>(rows.hints.size());
}

// All hints that these rows are measured with.
std::vector<TopkRows> HintedRows(std::span<const std::vector<int32_t>> answers, int64_t columns,
                                 Scores scores, bool are_steps) {
  std::vector<TopkRows> all = {{"none", {}, answers}};
  if (are_steps || scores == Scores::kNormal) all.push_back({"threshold", {}, answers, true});
  if (are_steps) {
    TopkRows rows{"step before", {answers.front()}, answers};
    rows.hints.insert(rows.hints.end(), answers.begin(), answers.end() - 1);
    all.push_back(std::move(rows));
  } else if (scores == Scores::kNormal) {
    for (const double percent : kOverlaps) {
      std::string name = std::to_string(percent);
      name.erase(name.find_last_not_of('0') + 1);
      if (name.back() == '.') name.pop_back();
      TopkRows rows{name + " %", {}, answers};
      for (const std::vector<int32_t>& answer : answers) {
        const auto index = static_cast<uint32_t>(rows.hints.size());
        rows.hints.push_back(MakeHint(answer, columns, percent, index));
      }
      all.push_back(std::move(rows));
    }
  }
  return all;
}

class Bench {
 public:
  Bench(const TopkBenchOptions& options, int64_t columns, int64_t rows)
      : options_(options), store_(columns, rows, options.cold_bytes), timer_(store_) {}

  void Measure(const NamedScores& named, std::span<const std::vector<float>> sources, DType dtype,
               const std::function<void(const TopkCell&)>& on_cell) {
    store_.Fill(dtype, sources);
    for (const int32_t k : options_.ks) {
      std::vector<std::vector<int32_t>> answers;
      for (const std::vector<float>& source : sources) {
        std::vector<float> row = source;
        if (dtype == DType::kBf16) {
          for (float& x : row) x = WidenBf16(RoundToBf16(x));
        }
        answers.push_back(FirstIds(row, k));
      }
      const bool are_steps = !options_.steps.empty();
      for (const TopkRows& rows : HintedRows(answers, store_.vocab(), named.scores, are_steps)) {
        for (const Backend backend : options_.backends) {
          on_cell(Time({named.name,
                        rows.hint_name,
                        store_.vocab(),
                        k,
                        dtype,
                        backend,
                        OverlapOf(rows),
                        {},
                        {},
                        0,
                        0},
                       rows));
        }
      }
    }
  }

 private:
  TopkCell Time(TopkCell cell, const TopkRows& rows) {
    TopkCall call(store_, cell.k, cell.backend, rows);
    const auto prepare = [&](const void* row, int64_t index) { call.Prepare(row, index); };
    const auto run = [&] { call.Run(); };
    const bool is_slow = cell.backend == Backend::kRef;
    const CallBudget budget{options_.calls, is_slow ? options_.slow_call_budget_ms : 0.0, 2};
    timer_.Hot({2}, prepare, run);  // the first calls of a cell find its code and memory cold
    cell.hot = timer_.Hot(budget, prepare, run);
    cell.cold = timer_.Cold(budget, prepare, run);
    call.Compare();
    cell.compared = call.compared();
    cell.different = call.different();
    return cell;
  }

  const TopkBenchOptions& options_;
  RowStore store_;
  RowTimer timer_;
};

}  // namespace

std::optional<TopkTarget> TargetOf(const TopkCell& cell) {
  const bool is_promised = cell.k == 2048 && cell.scores == "normal" && cell.hint == "none" &&
                           cell.dtype == DType::kF32 && cell.backend != Backend::kRef;
  if (is_promised && cell.columns == 65536) return TopkTarget{5.5, 2.0};
  if (is_promised && cell.columns == 131072) return TopkTarget{4.0, 1.85};
  return std::nullopt;
}

void RunTopkBench(const TopkBenchOptions& options,
                  const std::function<void(const TopkCell&)>& on_cell,
                  const std::function<void(const std::string&)>& on_progress) {
  if (!options.steps.empty()) {
    const auto columns = static_cast<int64_t>(options.steps.front().size());
    Bench bench(options, columns, std::ssize(options.steps));
    for (const DType dtype : options.dtypes) {
      on_progress(std::string(kStepsName) + ", " + std::string(Name(dtype)));
      bench.Measure({Scores::kNormal, kStepsName}, options.steps, dtype, on_cell);
    }
    return;
  }
  for (const int64_t columns : options.columns) {
    Bench bench(options, columns, options.rows);
    for (const NamedScores& named : options.scores) {
      on_progress(std::string(named.name) + ", " + std::to_string(columns) + ": making rows");
      std::vector<std::vector<float>> sources;
      for (int64_t r = 0; r < options.rows; ++r) {
        sources.push_back(MakeScores(named.scores, columns, static_cast<uint32_t>(r)));
      }
      for (const DType dtype : options.dtypes) {
        on_progress(std::string(named.name) + ", " + std::to_string(columns) + ", " +
                    std::string(Name(dtype)));
        bench.Measure(named, sources, dtype, on_cell);
      }
    }
  }
}

}  // namespace sluice::bench
