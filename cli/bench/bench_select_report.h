// What sluice bench select and sluice bench draw say: a table a group, a summary, and JSON.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/stages/select_bench.h"
#include "cli/bench/bench_report.h"
#include "cli/terminal.h"

namespace sluice::cli {

class SelectReport {
 public:
  // Without targets nothing is said of them but in the JSON.
  SelectReport(std::ostream& out, const Terminal& terminal, bool shows_targets)
      : out_(out), terminal_(terminal), shows_targets_(shows_targets) {}

  void Add(const bench::Group& group);
  void PrintSummary() const;
  void WriteJson(std::string_view bench_name, JsonFile& file) const;

  int64_t different() const { return different_; }  // timed results that are not the reference's

 private:
  void PrintHeading(const bench::Group& group) const;
  void Count(bool is_met);
  void AddTiming(std::vector<std::string>& line, const bench::Group& group,
                 const bench::Timing& timing, const bench::Target& target);
  std::string PeerText(const bench::Group& group, const bench::Cell& cell,
                       const bench::PeerTiming& peer);
  void PrintPeers(const bench::Group& group);
  const bench::Timing* Find(bench::Distribution distribution, DType dtype, bench::Task task,
                            const bench::Cell& like, bool is_hot) const;
  void PrintSlow() const;
  template <typename Numerator, typename Denominator>
  void CompareCells(const BackendInfo& backend, std::string_view what, double allowed,
                    const Numerator& numerator, const Denominator& denominator) const;

  std::ostream& out_;
  const Terminal& terminal_;
  bool shows_targets_;
  std::vector<bench::Group> groups_;
  struct TargetCount {
    int met = 0;
    int all = 0;
  };
  TargetCount line_;  // of the line that is being written
  std::map<Backend, TargetCount> targets_;
  int64_t different_ = 0;
};

}  // namespace sluice::cli
