#include "cli/bench/bench_select_report.h"

#include "cli/table.h"

namespace sluice::cli {
namespace {

using bench::Cell;
using bench::Group;
using bench::PeerTiming;
using bench::Target;
using bench::Targets;
using bench::Timing;

double Reached(const Timing& timing, const Target& target) {
  return target.is_of_mean ? timing.MeanTimesFloor() : timing.TimesFloor();
}

double GigabytesPerSecond(const Group& group, double nanoseconds) {
  return static_cast<double>(group.vocab) * static_cast<double>(SizeOf(group.dtype)) / nanoseconds;
}

// The definition is no algorithm for speed, and an algorithm that was chosen by name serves as a
// comparison: what is promised holds for what Sluice chooses.
bool IsPromised(const Cell& cell) {
  return cell.backend != Backend::kRef && cell.algorithm == research::Algorithm::kAuto;
}

Targets TargetsFor(const Group& group, const Cell& cell) {
  if (!IsPromised(cell) || group.vocab != bench::kTargetVocab) return {};
  return bench::TargetsOf(cell.task, group.distribution, group.dtype);
}

double PeerTargetFor(const Group& group, const Cell& cell, const PeerTiming& peer) {
  const bool is_promised =
      IsPromised(cell) && group.vocab == bench::kTargetVocab && group.dtype == DType::kF32;
  return is_promised ? bench::TargetOn(peer.hot_target, group.distribution) : 0.0;
}

std::string_view AlgorithmOf(const Cell& cell) {
  return cell.backend == Backend::kRef ? "definition" : NameOf(cell.algorithm);
}

}  // namespace

void SelectReport::Add(const Group& group) {
  PrintHeading(group);
  Table table("llllrrrrrlrrrrl");
  if (!shows_targets_) table.Hide({9, 14});
  table.Add({"task", "backend", "algorithm", "exact", "reads", "hot us", "mean", "GB/s", "floor",
             "target", "cold us", "mean", "GB/s", "floor", "target"},
            Style::kHeading);
  for (const Cell& cell : group.cells) {
    const Targets targets = TargetsFor(group, cell);
    line_ = {};
    const bool is_exact = cell.different == 0 && cell.compared > 0;
    different_ += cell.different;
    std::vector<std::string> line = {
        std::string(bench::Name(cell.task)), std::string(NameOf(cell.backend)),
        std::string(AlgorithmOf(cell)), is_exact ? "yes" : "NO", Reads(cell.reads)};
    AddTiming(line, group, cell.hot, targets.hot);
    AddTiming(line, group, cell.cold, targets.cold);
    if (line_.all > 0) {
      targets_[cell.backend].met += line_.met;
      targets_[cell.backend].all += line_.all;
    }
    const bool is_good = shows_targets_ && is_exact && line_.all > 0 && line_.met == line_.all;
    table.Add(line, cell.backend == Backend::kRef ? Style::kFaint
                    : is_good                     ? Style::kGood
                                                  : Style::kPlain);
  }
  table.Print(out_, terminal_);
  PrintPeers(group);
  out_ << '\n' << std::flush;
  groups_.push_back(group);
}

// A line for each task and peer, and in it a column for each backend and algorithm.
void SelectReport::PrintPeers(const Group& group) {
  std::vector<std::string> columns = {"task", "times faster than"};
  std::map<std::pair<bench::Task, std::string_view>, std::map<std::string, std::string>> lines;
  std::vector<std::pair<bench::Task, std::string_view>> order;
  for (const Cell& cell : group.cells) {
    const bool is_chosen =
        cell.backend == Backend::kRef || cell.algorithm == research::Algorithm::kAuto;
    const std::string column =
        std::string(NameOf(cell.backend)) + (is_chosen ? "" : " " + std::string(AlgorithmOf(cell)));
    line_ = {};
    for (const PeerTiming& peer : cell.peers) {
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
        columns.push_back(column);
      }
      const std::pair key(cell.task, std::string_view(peer.name));
      if (!lines.contains(key)) order.push_back(key);
      lines[key][column] = PeerText(group, cell, peer);
    }
    if (line_.all > 0) {
      targets_[cell.backend].met += line_.met;
      targets_[cell.backend].all += line_.all;
    }
  }
  if (order.empty()) return;
  out_ << '\n';
  Table table(std::string(columns.size(), 'l'));
  table.Add(columns, Style::kHeading);
  for (const auto& key : order) {
    std::vector<std::string> line = {std::string(bench::Name(key.first)), std::string(key.second)};
    for (size_t i = line.size(); i < columns.size(); ++i) line.push_back(lines[key][columns[i]]);
    table.Add(line);
  }
  table.Print(out_, terminal_);
}

void SelectReport::PrintSummary() const {
  out_ << terminal_.Styled("Summary", Style::kHeading) << '\n';
  out_ << "  results that differ from the reference: " << different_ << '\n';
  if (!shows_targets_) return;
  for (const auto& [backend, targets] : targets_) {
    out_ << "  " << NameOf(backend) << ": " << targets.met << " of " << targets.all
         << " targets met\n";
  }
  if (!groups_.empty() && groups_.front().vocab == bench::kTargetVocab) PrintSlow();
  for (const BackendInfo& info : Backends()) {
    if (info.backend == Backend::kRef) continue;
    CompareCells(
        info, "top-p at T=0.7 / at T=1, hot mean", 1.1,
        [&](const Cell& cell) { return cell.task == bench::Task::kTopPCool ? &cell.hot : nullptr; },
        [&](const Group& group, const Cell& cell) {
          return Find(group.distribution, group.dtype, bench::Task::kTopP, cell, true);
        });
    CompareCells(
        info, "bf16 / fp32, cold median", 0.8, [&](const Cell& cell) { return &cell.cold; },
        [&](const Group& group, const Cell& cell) -> const Timing* {
          if (group.dtype != DType::kBf16) return nullptr;
          return Find(group.distribution, DType::kF32, cell.task, cell, false);
        });
  }
}

void SelectReport::PrintHeading(const Group& group) const {
  const bench::NucleusSizes& nucleus = group.nucleus;
  out_ << terminal_.Styled(std::string(bench::Name(group.distribution)) + ", " +
                               std::string(Name(group.dtype)) + ", V=" + Number(group.vocab),
                           Style::kHeading)
       << ": nucleus of p=0.9 " << nucleus.least << " / " << nucleus.median << " / " << nucleus.most
       << " tokens (least, median, most)";
  if (!group.is_as_wanted) {
    const bench::SizeRange wanted = bench::TargetNucleus(group.distribution, group.vocab);
    out_ << ", NOT " << wanted.low << " to " << wanted.high;
  }
  if (!group.cells.empty()) {
    const Cell& first = group.cells.front();
    out_ << "; floor " << Short(first.hot.floor / 1e3) << " us hot, "
         << Short(first.cold.floor / 1e3) << " us cold";
  }
  out_ << '\n';
}

void SelectReport::Count(bool is_met) {
  line_.met += is_met ? 1 : 0;
  ++line_.all;
}

void SelectReport::AddTiming(std::vector<std::string>& line, const Group& group,
                             const Timing& timing, const Target& target) {
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
  line.push_back(Short(target.times) + (is_met ? " met" : " missed"));
}

std::string SelectReport::PeerText(const Group& group, const Cell& cell, const PeerTiming& peer) {
  const double hot = peer.hot.median / cell.hot.median;
  std::string text = Times(hot) + " (" + Times(peer.cold.median / cell.cold.median) + ")";
  const double target = PeerTargetFor(group, cell, peer);
  if (target == 0.0) return text;
  const bool is_met = hot >= target;
  Count(is_met);
  if (shows_targets_) text += " [" + Short(target) + (is_met ? " met]" : " missed]");
  return text;
}

const Timing* SelectReport::Find(bench::Distribution distribution, DType dtype, bench::Task task,
                                 const Cell& like, bool is_hot) const {
  for (const Group& group : groups_) {
    if (group.distribution != distribution || group.dtype != dtype) continue;
    for (const Cell& cell : group.cells) {
      const bool is_it =
          cell.task == task && cell.backend == like.backend && cell.algorithm == like.algorithm;
      if (is_it) return is_hot ? &cell.hot : &cell.cold;
    }
  }
  return nullptr;
}

// Where a row takes longer than any may: by task, backend and dtype, with the kinds of rows.
void SelectReport::PrintSlow() const {
  std::map<std::string, std::string> places;
  for (const Group& group : groups_) {
    for (const Cell& cell : group.cells) {
      if (!IsPromised(cell) || cell.hot.TimesFloor() <= bench::kAnyRowHot) continue;
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
void SelectReport::CompareCells(const BackendInfo& backend, std::string_view what, double allowed,
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
              std::string(bench::Name(group.distribution)) + ", " + std::string(Name(group.dtype));
    }
  }
  if (all == 0) return;
  out_ << "  " << backend.name << ": " << what << ": at most " << Short(allowed) << " in " << met
       << " of " << all << " cells; largest " << Short(largest) << " (" << where << ")\n";
}

// One row a cell, a cache state and a peer; and one where there is no peer.
void SelectReport::WriteJson(std::string_view bench_name, JsonFile& file) const {
  const auto write_row = [&](JsonWriter& json, const Group& group, const Cell& cell, bool is_hot,
                             const PeerTiming* peer) {
    const Timing& timing = is_hot ? cell.hot : cell.cold;
    const Targets targets = TargetsFor(group, cell);
    const Target& target = is_hot ? targets.hot : targets.cold;
    const auto number_or_null = [&](double value) {
      value > 0.0 ? json.Value(value) : json.Null();
    };
    file.NewLine();
    json.Object([&] {
      json.Key("bench").Value(bench_name);
      json.Key("task").Value(bench::Name(cell.task));
      json.Key("backend").Value(NameOf(cell.backend));
      json.Key("algorithm").Value(AlgorithmOf(cell));
      json.Key("dtype").Value(Name(group.dtype));
      json.Key("vocab").Value(group.vocab);
      json.Key("batch").Value(1);
      json.Key("distribution").Value(bench::Name(group.distribution));
      json.Key("cache").Value(is_hot ? "hot" : "cold");
      json.Key("calls").Value(timing.calls);
      json.Key("ns").Value(timing.median);
      json.Key("mean_ns").Value(timing.mean);
      json.Key("floor_ns").Value(timing.floor);
      json.Key("reads");
      number_or_null(cell.reads);
      json.Key("peer");
      peer != nullptr ? json.Value(peer->name) : json.Null();
      json.Key("peer_ns");
      number_or_null(peer == nullptr ? 0.0 : is_hot ? peer->hot.median : peer->cold.median);
      json.Key("peer_target");
      number_or_null(peer != nullptr && is_hot ? PeerTargetFor(group, cell, *peer) : 0.0);
      json.Key("exact").Value(cell.different == 0 && cell.compared > 0);
      json.Key("compared").Value(cell.compared);
      json.Key("target");
      number_or_null(target.times);
      json.Key("target_of").Value(target.is_of_mean ? "mean" : "median");
    });
  };
  file.Write([&](JsonWriter& json) {
    for (const Group& group : groups_) {
      for (const Cell& cell : group.cells) {
        for (const bool is_hot : {true, false}) {
          if (cell.peers.empty()) write_row(json, group, cell, is_hot, nullptr);
          for (const PeerTiming& peer : cell.peers) write_row(json, group, cell, is_hot, &peer);
        }
      }
    }
  });
}

}  // namespace sluice::cli
