// The names of the algorithms, and what is said about them. Their loops are in cpu/algorithms/.
#include <iterator>
#include <string>

#include "select/select_table.h"
#include "support/check.h"

namespace sluice {
namespace {

constexpr AlgorithmInfo kAlgorithms[] = {
    {SelectAlgorithm::kAuto, "auto", "always, unless measurements here say otherwise",
     "as good as its policy table, which `sluice bench tune` rewrites", ""},
    {SelectAlgorithm::kCertified, "certified",
     "rows like a model's: nuclei and k up to some hundred tokens",
     "a boundary among very many tokens, or values with few distinct ones, takes more passes", ""},
    {SelectAlgorithm::kQuickselect, "quickselect", "wide nuclei, k of thousands",
     "some ten partitions whatever the row, each a pass to count and a pass to move",
     "left unfinished in J. Rudolph, 2023"},
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
