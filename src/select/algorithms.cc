// The names of the algorithms, and what is said about them. Their loops are in algorithms/.
#include <iterator>
#include <string>

#include "select/select_table.h"
#include "support/check.h"

namespace sluice {
namespace {

constexpr AlgorithmInfo kAlgorithms[] = {
    {SelectAlgorithm::kAuto, "auto", "always, unless measurements here say otherwise",
     "as good as its policy table, which `sluice bench tune` rewrites", ""},
    {SelectAlgorithm::kCertified, "certified", "rows like a model's, of more than some thousand",
     "rows whose boundary lies among very many tokens need more passes", ""},
    {SelectAlgorithm::kSort, "sort", "some hundred tokens, or when the order is wanted anyway",
     "n log n reads whatever the row", ""},
    {SelectAlgorithm::kFilterSort, "filter_sort", "peaked rows",
     "on flat rows the filter drops little and everything is sorted",
     "J. Rudolph, Finding the top-p elements, 2023; llama2.c"},
    {SelectAlgorithm::kFilterScan, "filter_scan", "nuclei of a few tokens",
     "one scan for each distinct kept value; sorts after 64 scans", "J. Rudolph, 2023"},
    {SelectAlgorithm::kQuickFindMax, "quick_find_max", "nuclei of one to three tokens",
     "reads the whole row for each distinct kept value; sorts after 64 reads", "J. Rudolph, 2023"},
    {SelectAlgorithm::kHistogram, "histogram", "top-p on rows of any shape",
     "a bucket is an octave: a flat tail lies in a few of them", "J. Rudolph, 2023"},
    {SelectAlgorithm::kQuickselect, "quickselect", "wide nuclei and large k",
     "mispredicts; its moves are reads and writes", "left unfinished in J. Rudolph, 2023"},
    {SelectAlgorithm::kRadix, "radix", "any row: at most four passes whatever it holds",
     "histograms are scalar: slow passes on rows that others end in one", ""},
    {SelectAlgorithm::kPivot, "pivot", "wide nuclei, large k, rows with a Gaussian body",
     "each pass compares with several pivots", "Qrita, 2026"},
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
