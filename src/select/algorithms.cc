// The names of the algorithms, and what is said about them. Their loops are in cpu/algorithms/.
#include <iterator>
#include <string>

#include "select/select_table.h"
#include "support/check.h"

namespace sluice {
namespace {

// Times in microseconds for top-p 0.9 at T = 1, fp32, 512-bit vectors, one core, as `peaked / mid /
// flat / normal` rows of bench/rows.h with 32000 tokens: what "slow" means in the limits.
//   certified 9 / 21 / 59 / 101           sort 1490 / 1500 / 1500 / 1540
//   filter_sort 190 / 320 / 580 / 1510    filter_scan 22 / 140 / 740 / 1680
//   quick_find_max 25 / 250 / 860 / 1790  histogram 33 / 32 / 42 / 53
//   quickselect 34 / 42 / 40 / 43         radix 57 / 57 / 60 / 67
//   pivot 29 / 31 / 59 / 37
constexpr AlgorithmInfo kAlgorithms[] = {
    {SelectAlgorithm::kAuto, "auto", "always, unless measurements here say otherwise",
     "as good as its policy table, which `sluice bench tune` rewrites", ""},
    {SelectAlgorithm::kCertified, "certified",
     "rows like a model's: nuclei and k up to some hundred tokens",
     "a boundary among very many tokens, or values with few distinct ones, takes more passes", ""},
    {SelectAlgorithm::kSort, "sort", "some hundred tokens; to compare with",
     "sorts everything whatever the row: the slowest one from a thousand tokens on", ""},
    {SelectAlgorithm::kFilterSort, "filter_sort", "small k: the filter leaves few more than k",
     "a nucleus that is not peaked: what the filter leaves is sorted, on flat rows nearly "
     "everything",
     "J. Rudolph, Finding the top-p elements, 2023; llama2.c"},
    {SelectAlgorithm::kFilterScan, "filter_scan", "nuclei of a few tokens, small k",
     "two scans for each distinct kept value; sorts after reading 32 lists", "J. Rudolph, 2023"},
    {SelectAlgorithm::kQuickFindMax, "quick_find_max",
     "nuclei of one to three tokens, rows of few distinct values",
     "reads the whole row for each distinct kept value; sorts after reading 64 lists",
     "J. Rudolph, 2023"},
    {SelectAlgorithm::kHistogram, "histogram", "top-p on rows of any shape",
     "counts one element at a time: top-k and typical, which have no cheaper bucket than a key's",
     "J. Rudolph, 2023"},
    {SelectAlgorithm::kQuickselect, "quickselect", "wide nuclei, k of thousands",
     "some ten partitions whatever the row, each a pass to count and a pass to move",
     "left unfinished in J. Rudolph, 2023"},
    {SelectAlgorithm::kRadix, "radix", "where the time must not depend on the row: three passes",
     "counts one element at a time, and rows of few values wait for the same counters", ""},
    {SelectAlgorithm::kPivot, "pivot", "normal rows, wide nuclei, rows that certified is slow on",
     "rows with a boundary between the body and its outliers: the sample says little there",
     "Qrita, 2026"},
};

std::string KnownNames() {
  std::string known;
  for (const AlgorithmInfo& info : kAlgorithms) {
    known.append(known.empty() ? "" : ", ").append(info.name);
  }
  return known;
}

}  // namespace

std::span<const AlgorithmInfo> SelectAlgorithms() { return kAlgorithms; }

SelectAlgorithm SelectAlgorithmByName(std::string_view name) {
  for (const AlgorithmInfo& info : kAlgorithms) {
    if (info.name == name) return info.algorithm;
  }
  ThrowInvalid("algorithm", ToText(name), KnownNames());
}

void CheckAlgorithm(const Execution& execution, int64_t rows) {
  if (static_cast<size_t>(execution.algorithm) >= std::size(kAlgorithms)) {
    ThrowInvalid("execution.algorithm", ToText(static_cast<int64_t>(execution.algorithm)),
                 KnownNames());
  }
  if (!execution.work.empty()) CheckSize("execution.work", execution.work.size(), rows);
}

}  // namespace sluice
