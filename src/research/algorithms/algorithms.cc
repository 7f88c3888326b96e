// The names of all ways to select on a CPU, what is said about them, and the choice between them.
#include "sluice/research/algorithms.hpp"

#include <array>
#include <string>

#include "research/algorithms/row_selectors.h"
#include "sampler/sample_row.h"
#include "support/check.h"
#include "support/registry.h"

namespace sluice::research {
namespace {

// Times in microseconds for top-p 0.9 at T = 1, fp32, 512-bit vectors, one core, as `peaked / mid /
// flat / normal` rows of bench/support/rows.h with 32000 tokens: what "slow" means in the limits.
//   certified 9 / 21 / 59 / 101           sort 1490 / 1500 / 1500 / 1540
//   filter_sort 190 / 320 / 580 / 1510    filter_scan 22 / 140 / 740 / 1680
//   quick_find_max 25 / 250 / 860 / 1790  histogram 33 / 32 / 42 / 53
//   quickselect 34 / 42 / 40 / 43         radix 57 / 57 / 60 / 67
//   pivot 29 / 31 / 59 / 37
constexpr AlgorithmEntry kOwn[] = {
    {Algorithm::kSort, "sort", "some hundred tokens; to compare with",
     "sorts everything whatever the row: the slowest one from a thousand tokens on", ""},
    {Algorithm::kFilterSort, "filter_sort", "small k: the filter leaves few more than k",
     "a nucleus that is not peaked: what the filter leaves is sorted, on flat rows nearly "
     "everything",
     "J. Rudolph, Finding the top-p elements, 2023; llama2.c"},
    {Algorithm::kFilterScan, "filter_scan", "nuclei of a few tokens, small k",
     "two scans for each distinct kept value; sorts after reading 32 lists", "J. Rudolph, 2023"},
    {Algorithm::kQuickFindMax, "quick_find_max",
     "nuclei of one to three tokens, rows of few distinct values",
     "reads the whole row for each distinct kept value; sorts after reading 64 lists",
     "J. Rudolph, 2023"},
    {Algorithm::kHistogram, "histogram", "top-p on rows of any shape",
     "counts one element at a time: top-k and typical, which have no cheaper bucket than a key's",
     "J. Rudolph, 2023"},
    {Algorithm::kRadix, "radix", "where the time must not depend on the row: three passes",
     "counts one element at a time, and rows of few values wait for the same counters", ""},
};

constexpr size_t kAlgorithms = 10;

std::array<AlgorithmEntry, kAlgorithms> InOrder() {
  std::array<AlgorithmEntry, kAlgorithms> all;
  const auto place = [&](const AlgorithmEntry& entry) {
    all[static_cast<size_t>(entry.algorithm)] = entry;
  };
  for (const AlgorithmInfo& info : SelectAlgorithms()) {
    place({AlgorithmOf(info.algorithm), info.name, info.when_to_use, info.limits, info.source});
  }
  for (const AlgorithmEntry& entry : kOwn) place(entry);
  return all;
}

std::string KnownNames() {
  std::string known;
  for (const AlgorithmEntry& entry : Algorithms()) {
    known.append(known.empty() ? "" : ", ").append(entry.name);
  }
  return known;
}

void CheckKnown(Algorithm algorithm) {
  if (static_cast<size_t>(algorithm) >= kAlgorithms) {
    ThrowInvalid("algorithm", ToText(static_cast<int64_t>(algorithm)), KnownNames());
  }
}

// What a backend has for an algorithm of the study; null for one of the core.
[[maybe_unused]] SelectRow SelectorOf(const RowSelectors& selectors, Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kSort:
      return selectors.sort;
    case Algorithm::kFilterSort:
      return selectors.filter_sort;
    case Algorithm::kFilterScan:
      return selectors.filter_scan;
    case Algorithm::kQuickFindMax:
      return selectors.quick_find_max;
    case Algorithm::kHistogram:
      return selectors.histogram;
    case Algorithm::kRadix:
      return selectors.radix;
    case Algorithm::kAuto:
    case Algorithm::kCertified:
    case Algorithm::kQuickselect:
    case Algorithm::kPivot:
      break;
  }
  return nullptr;
}

// The backend's table with the algorithm in place of its own way to select a row.
SelectTable TableFor(Backend backend, [[maybe_unused]] Algorithm algorithm) {
  SelectTable table = SelectTableFor(backend);
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      table.select_row = SelectorOf(kSelectorsAvx512, algorithm);
      break;
    case Backend::kCpuAvx2:
      table.select_row = SelectorOf(kSelectorsAvx2, algorithm);
      break;
#endif
    default:
      break;
  }
  return table;
}

Execution With(Execution execution, SelectAlgorithm algorithm) {
  execution.algorithm = algorithm;
  return execution;
}

}  // namespace

std::span<const AlgorithmEntry> Algorithms() {
  static const std::array<AlgorithmEntry, kAlgorithms> all = InOrder();
  return all;
}

Algorithm AlgorithmByName(std::string_view name) {
  for (const AlgorithmEntry& entry : Algorithms()) {
    if (entry.name == name) return entry.algorithm;
  }
  ThrowInvalid("algorithm", ToText(name), KnownNames());
}

Algorithm AlgorithmOf(SelectAlgorithm algorithm) {
  switch (algorithm) {
    case SelectAlgorithm::kAuto:
      break;
    case SelectAlgorithm::kCertified:
      return Algorithm::kCertified;
    case SelectAlgorithm::kQuickselect:
      return Algorithm::kQuickselect;
    case SelectAlgorithm::kPivot:
      return Algorithm::kPivot;
  }
  return Algorithm::kAuto;
}

std::optional<SelectAlgorithm> CoreAlgorithm(Algorithm algorithm) {
  for (const AlgorithmInfo& info : SelectAlgorithms()) {
    if (AlgorithmOf(info.algorithm) == algorithm) return info.algorithm;
  }
  return std::nullopt;
}

void Select(const SelectInput& input, Algorithm algorithm, std::span<Cut> cuts,
            std::span<CutMass> masses, const Execution& execution) {
  CheckKnown(algorithm);
  if (const auto core = CoreAlgorithm(algorithm)) {
    sluice::Select(input, cuts, masses, With(execution, *core));
    return;
  }
  CheckLogits("logits", input.logits);
  CheckWorkers(execution);
  SelectWith(TableFor(execution.backend, algorithm), input, cuts, masses,
             With(execution, SelectAlgorithm::kAuto));
}

void Sample(const SelectInput& input, DrawMethod method, Algorithm algorithm,
            std::span<TokenResult> results, const Execution& execution) {
  CheckKnown(algorithm);
  if (const auto core = CoreAlgorithm(algorithm)) {
    sluice::Sample(input, method, results, With(execution, *core));
    return;
  }
  CheckLogits("logits", input.logits);
  CheckWorkers(execution);
  SampleWith(TableFor(execution.backend, algorithm), input, method, results,
             With(execution, SelectAlgorithm::kAuto));
}

Algorithm RanBy(Algorithm algorithm, const SelectWork& work) {
  if (work.elements_read == 0) return Algorithm::kAuto;
  return CoreAlgorithm(algorithm) ? AlgorithmOf(work.algorithm) : algorithm;
}

}  // namespace sluice::research
