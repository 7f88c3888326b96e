#include "cli/bench.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <map>
#include <stdexcept>

#include "bench/environment.h"
#include "bench/floor.h"
#include "bench/select_bench.h"
#include "cli/json.h"
#include "cli/table.h"

namespace sluice::cli {
namespace {

using bench::Cell;
using bench::Group;
using bench::PeerTiming;
using bench::Target;
using bench::Targets;
using bench::Timing;

// Of the lists of the options, the values that were asked for: all, when none was.
template <typename T>
std::vector<T> Chosen(std::span<const T> all, const std::vector<std::string>& names) {
  std::vector<T> chosen;
  for (const T& value : all) {
    const bool is_named = std::find(names.begin(), names.end(), bench::Name(value)) != names.end();
    if (names.empty() || is_named) chosen.push_back(value);
  }
  return chosen;
}

std::vector<Backend> ChosenBackends(const std::vector<std::string>& names) {
  std::vector<Backend> chosen;
  for (const std::string& name : names) {
    const Backend backend = BackendByName(name);
    if (std::find(chosen.begin(), chosen.end(), backend) == chosen.end()) {
      chosen.push_back(backend);
    }
  }
  for (const BackendInfo& info : Backends()) {
    if (names.empty() && info.available) chosen.push_back(info.backend);
  }
  return chosen;
}

std::string_view NameOf(Backend backend) {
  for (const BackendInfo& info : Backends()) {
    if (info.backend == backend) return info.name;
  }
  return "auto";
}

double Reached(const Timing& timing, const Target& target) {
  return target.is_of_mean ? timing.MeanTimesFloor() : timing.TimesFloor();
}

// Three digits or so: "0.62", "12.4", "8113".
std::string Short(double value) { return Fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0); }

std::string Times(double value) { return std::string("x").append(Short(value)); }

double GigabytesPerSecond(const Group& group, double nanoseconds) {
  return static_cast<double>(group.vocab) * static_cast<double>(SizeOf(group.dtype)) / nanoseconds;
}

// The definition is no algorithm for speed: what is promised holds for the other backends.
Targets TargetsFor(const Group& group, const Cell& cell) {
  if (cell.backend == Backend::kRef || group.vocab != bench::kTargetVocab) return {};
  return bench::TargetsOf(cell.task, group.distribution, group.dtype);
}

double PeerTargetFor(const Group& group, const Cell& cell, const PeerTiming& peer) {
  const bool is_promised = cell.backend != Backend::kRef && group.vocab == bench::kTargetVocab &&
                           group.dtype == DType::kF32 && bench::IsLikeAModels(group.distribution);
  return is_promised ? peer.hot_target : 0.0;
}

class Report {
 public:
  Report(std::ostream& out, const Terminal& terminal) : out_(out), terminal_(terminal) {}

  void Add(const Group& group) {
    PrintHeading(group);
    Table table("lllrrrrlrrrrll");
    table.Add({"task", "backend", "exact", "hot us", "mean", "GB/s", "floor", "target", "cold us",
               "mean", "GB/s", "floor", "target", "faster than peers, hot (cold)"},
              Style::kHeading);
    for (const Cell& cell : group.cells) {
      const Targets targets = TargetsFor(group, cell);
      line_ = {};
      const bool is_exact = cell.different == 0 && cell.compared > 0;
      different_ += cell.different;
      std::vector<std::string> line = {std::string(bench::Name(cell.task)),
                                       std::string(NameOf(cell.backend)), is_exact ? "yes" : "NO"};
      AddTiming(line, group, cell.hot, targets.hot);
      AddTiming(line, group, cell.cold, targets.cold);
      line.push_back(PeerText(group, cell));
      if (line_.all > 0) {
        targets_[cell.backend].met += line_.met;
        targets_[cell.backend].all += line_.all;
      }
      const bool is_good = is_exact && line_.all > 0 && line_.met == line_.all;
      table.Add(line, cell.backend == Backend::kRef ? Style::kFaint
                      : is_good                     ? Style::kGood
                                                    : Style::kPlain);
    }
    table.Print(out_, terminal_);
    out_ << '\n' << std::flush;
    groups_.push_back(group);
  }

  void PrintSummary() const {
    out_ << terminal_.Styled("Summary", Style::kHeading) << '\n';
    out_ << "  results that differ from the reference: " << different_ << '\n';
    for (const auto& [backend, targets] : targets_) {
      out_ << "  " << NameOf(backend) << ": " << targets.met << " of " << targets.all
           << " targets met\n";
    }
    if (!groups_.empty() && groups_.front().vocab == bench::kTargetVocab) PrintSlow();
    for (const BackendInfo& info : Backends()) {
      if (info.backend == Backend::kRef) continue;
      CompareCells(
          info, "top-p at T=0.7 / at T=1, hot mean", 1.1,
          [&](const Cell& cell) {
            return cell.task == bench::Task::kTopPCool ? &cell.hot : nullptr;
          },
          [&](const Group& group, const Cell&) {
            return Find(group.distribution, group.dtype, bench::Task::kTopP, info.backend, true);
          });
      CompareCells(
          info, "bf16 / fp32, cold median", 0.8, [&](const Cell& cell) { return &cell.cold; },
          [&](const Group& group, const Cell& cell) -> const Timing* {
            if (group.dtype != DType::kBf16) return nullptr;
            return Find(group.distribution, DType::kF32, cell.task, info.backend, false);
          });
    }
  }

  void WriteJson(std::ostream& file) const;

  int64_t different() const { return different_; }

 private:
  void PrintHeading(const Group& group) const {
    const bench::NucleusSizes& nucleus = group.nucleus;
    out_ << terminal_.Styled(std::string(bench::Name(group.distribution)) + ", " +
                                 std::string(Name(group.dtype)) + ", V=" + Number(group.vocab),
                             Style::kHeading)
         << ": nucleus of p=0.9 " << nucleus.least << " / " << nucleus.median << " / "
         << nucleus.most << " tokens (least, median, most)";
    if (!nucleus.is_as_wanted) {
      const bench::SizeRange wanted = bench::WantedNucleus(group.distribution);
      out_ << ", NOT " << wanted.low << " to " << wanted.high;
    }
    if (!group.cells.empty()) {
      const Cell& first = group.cells.front();
      out_ << "; floor " << Short(first.hot.floor / 1e3) << " us hot, "
           << Short(first.cold.floor / 1e3) << " us cold";
    }
    out_ << '\n';
  }

  void Count(bool is_met) {
    line_.met += is_met ? 1 : 0;
    ++line_.all;
  }

  void AddTiming(std::vector<std::string>& line, const Group& group, const Timing& timing,
                 const Target& target) {
    line.push_back(Short(timing.median / 1e3));
    line.push_back(Short(timing.mean / 1e3));
    line.push_back(Short(GigabytesPerSecond(group, timing.median)));
    const bool is_mean = target.is_of_mean;
    line.push_back(Times(Reached(timing, target)) + (is_mean ? "m" : ""));
    if (target.times == 0.0) {
      line.emplace_back();
      return;
    }
    const bool is_met = Reached(timing, target) <= target.times;
    Count(is_met);
    line.push_back(Short(target.times) + (is_met ? " met" : " MISSED"));
  }

  std::string PeerText(const Group& group, const Cell& cell) {
    std::string text;
    for (const PeerTiming& peer : cell.peers) {
      const double hot = peer.hot.median / cell.hot.median;
      if (!text.empty()) text += ", ";
      text += std::string(peer.name) + " " + Times(hot);
      text += " (" + Times(peer.cold.median / cell.cold.median) + ")";
      const double target = PeerTargetFor(group, cell, peer);
      if (target == 0.0) continue;
      const bool is_met = hot >= target;
      Count(is_met);
      text += " [" + Short(target) + (is_met ? " met]" : " MISSED]");
    }
    return text;
  }

  const Timing* Find(bench::Distribution distribution, DType dtype, bench::Task task,
                     Backend backend, bool is_hot) const {
    for (const Group& group : groups_) {
      if (group.distribution != distribution || group.dtype != dtype) continue;
      for (const Cell& cell : group.cells) {
        if (cell.task == task && cell.backend == backend) return is_hot ? &cell.hot : &cell.cold;
      }
    }
    return nullptr;
  }

  // Where a row takes longer than any may: by task, backend and dtype, with the kinds of rows.
  void PrintSlow() const {
    std::map<std::string, std::string> places;
    for (const Group& group : groups_) {
      for (const Cell& cell : group.cells) {
        if (cell.backend == Backend::kRef || cell.hot.TimesFloor() <= bench::kAnyRowHot) continue;
        std::string& list =
            places[std::string(bench::Name(cell.task)) + ", " + std::string(NameOf(cell.backend)) +
                   ", " + std::string(Name(group.dtype))];
        if (!list.empty()) list += ", ";
        list.append(bench::Name(group.distribution)).append(" ");
        list += Times(cell.hot.TimesFloor());
      }
    }
    out_ << "  slower than " << Times(bench::kAnyRowHot)
         << " the floor, hot:" << (places.empty() ? " none" : "") << '\n';
    for (const auto& [what, rows] : places) out_ << "    " << what << ": " << rows << '\n';
  }

  // The largest quotient of a cell's time and another's, and where it is.
  template <typename Numerator, typename Denominator>
  void CompareCells(const BackendInfo& backend, std::string_view what, double allowed,
                    const Numerator& numerator, const Denominator& denominator) const {
    double largest = 0.0;
    int met = 0;
    int all = 0;
    std::string where;
    for (const Group& group : groups_) {
      for (const Cell& cell : group.cells) {
        if (cell.backend != backend.backend) continue;
        const Timing* const top = numerator(cell);
        const Timing* const bottom = top == nullptr ? nullptr : denominator(group, cell);
        if (bottom == nullptr) continue;
        const bool is_hot = top == &cell.hot;
        const double quotient = is_hot ? top->mean / bottom->mean : top->median / bottom->median;
        ++all;
        met += quotient <= allowed ? 1 : 0;
        if (quotient <= largest) continue;
        largest = quotient;
        where = std::string(bench::Name(cell.task)) + ", " +
                std::string(bench::Name(group.distribution)) + ", " +
                std::string(Name(group.dtype));
      }
    }
    if (all == 0) return;
    out_ << "  " << backend.name << ": " << what << ": at most " << Short(allowed) << " in " << met
         << " of " << all << " cells; largest " << Short(largest) << " (" << where << ")\n";
  }

  std::ostream& out_;
  const Terminal& terminal_;
  std::vector<Group> groups_;
  struct TargetCount {
    int met = 0;
    int all = 0;
  };
  TargetCount line_;  // of the line that is being written
  std::map<Backend, TargetCount> targets_;
  int64_t different_ = 0;
};

// One line a cell, a cache state and a peer.
void Report::WriteJson(std::ostream& file) const {
  const bench::Environment environment = bench::ThisEnvironment();
  JsonWriter json(file);
  const auto row = [&](const Group& group, const Cell& cell, bool is_hot, const PeerTiming& peer) {
    const Timing& timing = is_hot ? cell.hot : cell.cold;
    const Targets targets = TargetsFor(group, cell);
    const Target& target = is_hot ? targets.hot : targets.cold;
    file << '\n';
    json.Object([&] {
      json.Key("bench").Value("select");
      json.Key("task").Value(bench::Name(cell.task));
      json.Key("backend").Value(NameOf(cell.backend));
      json.Key("dtype").Value(Name(group.dtype));
      json.Key("vocab").Value(group.vocab);
      json.Key("batch").Value(1);
      json.Key("distribution").Value(bench::Name(group.distribution));
      json.Key("cache").Value(is_hot ? "hot" : "cold");
      json.Key("calls").Value(timing.calls);
      json.Key("ns").Value(timing.median);
      json.Key("mean_ns").Value(timing.mean);
      json.Key("floor_ns").Value(timing.floor);
      json.Key("peer").Value(peer.name);
      json.Key("peer_ns").Value(is_hot ? peer.hot.median : peer.cold.median);
      const double peer_target = is_hot ? PeerTargetFor(group, cell, peer) : 0.0;
      json.Key("peer_target");
      peer_target > 0.0 ? json.Value(peer_target) : json.Null();
      json.Key("exact").Value(cell.different == 0 && cell.compared > 0);
      json.Key("compared").Value(cell.compared);
      json.Key("target");
      target.times > 0.0 ? json.Value(target.times) : json.Null();
      json.Key("target_of").Value(target.is_of_mean ? "mean" : "median");
    });
  };
  json.Object([&] {
    json.Key("env").Object([&] {
      json.Key("cpu").Value(environment.cpu);
      json.Key("cores").Value(environment.cores);
      json.Key("compiler").Value(environment.compiler);
      json.Key("os").Value(environment.os);
      json.Key("floor").Value(bench::RowMaxInstructions());
    });
    json.Key("commit").Value(environment.commit);
    json.Key("rows").Array([&] {
      for (const Group& group : groups_) {
        for (const Cell& cell : group.cells) {
          for (const PeerTiming& peer : cell.peers) {
            for (const bool is_hot : {true, false}) row(group, cell, is_hot, peer);
          }
        }
      }
    });
  });
  file << '\n';
}

template <typename T>
std::vector<std::string> NamesOf(std::span<const T> values) {
  std::vector<std::string> names;
  for (const T& value : values) names.emplace_back(bench::Name(value));
  return names;
}

}  // namespace

std::vector<std::string> BenchTaskNames() { return NamesOf<bench::Task>(bench::kTasks); }
std::vector<std::string> BenchDistributionNames() {
  return NamesOf<bench::Distribution>(bench::kDistributions);
}

void RunBenchSelect(const BenchSelectOptions& options, std::ostream& out,
                    const Terminal& terminal) {
  bench::SelectBenchOptions run =
      options.is_quick ? bench::QuickOptions() : bench::SelectBenchOptions{};
  run.vocab = options.vocab;
  run.tasks = Chosen<bench::Task>(bench::kTasks, options.tasks);
  run.distributions = Chosen<bench::Distribution>(bench::kDistributions, options.distributions);
  for (const std::string& name : options.dtypes.empty() ? kBenchDTypeNames : options.dtypes) {
    run.dtypes.push_back(name == "bf16" ? DType::kBf16 : DType::kF32);
  }
  run.backends = ChosenBackends(options.backends);

  std::ofstream file;  // opened first: nobody wants to hear of it after minutes
  if (!options.json_path.empty()) {
    file.open(options.json_path);
    if (!file) throw std::runtime_error("cannot write " + options.json_path);
  }

  const bench::Environment environment = bench::ThisEnvironment();
  out << environment.cpu << ", " << environment.compiler << ", commit " << environment.commit
      << "\nOne thread. Floor: one streaming read of the row (" << bench::RowMaxInstructions()
      << "), measured next to every call; x1.00 is as fast, m marks a mean, everything else is a "
         "median.\n";
  if (options.is_quick)
    out << "--quick: too few rows for any of these figures to mean something.\n";
  out << '\n';

  const bool shows_progress = isatty(STDERR_FILENO) != 0;
  Report report(out, terminal);
  bench::RunSelectBench(
      run,
      [&](const Group& group) {
        if (shows_progress) std::cerr << "\r\x1b[K" << std::flush;
        report.Add(group);
      },
      [&](const std::string& next) {
        if (shows_progress) std::cerr << "\r\x1b[Kbench: " << next << std::flush;
      });
  report.PrintSummary();
  if (file.is_open()) {
    report.WriteJson(file);
    file.close();
    if (!file) throw std::runtime_error("cannot write " + options.json_path);
  }
  if (report.different() > 0) {
    out.flush();
    throw std::runtime_error("timed results that are not the reference's: " +
                             Number(report.different()));
  }
}

}  // namespace sluice::cli
