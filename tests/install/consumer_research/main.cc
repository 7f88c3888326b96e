// A project that uses the installed component research: every algorithm keeps the same two tokens,
// and the clusters' code links.
#include <iostream>
#include <memory>
#include <sluice/research/algorithms.hpp>
#include <sluice/research/clusters.hpp>
#include <sluice/sluice.hpp>
#include <string_view>
#include <vector>

int main(int argc, char** argv) {
  std::cout << "Sluice " << sluice::kVersionString << '\n';
  const float row[] = {1.0f, 3.0f, 2.0f, 0.0f};
  const sluice::LogitsView logits{row, 1, 4, 4};
  const sluice::SelectParams params{.top_k = 2};
  std::vector<std::byte> memory(sluice::SelectWorkspaceBytes(logits, {}) +
                                sluice::kWorkspaceAlignment);
  void* start = memory.data();
  size_t space = memory.size();
  std::align(sluice::kWorkspaceAlignment, 1, start, space);
  const sluice::Execution execution{.workspace = {static_cast<std::byte*>(start), space}};
  for (const sluice::research::AlgorithmEntry& entry : sluice::research::Algorithms()) {
    sluice::Cut cut;
    sluice::research::Select({logits, {&params, 1}}, entry.algorithm, {&cut, 1}, {}, execution);
    if (cut.count != 2 || cut.lower != 2.0f) return 1;
  }
  const auto metric = sluice::research::ClusterMetricByName("spherical");
  if (metric != sluice::research::ClusterMetric::kSpherical) return 1;
  return argc == 2 && std::string_view(argv[1]) == sluice::kVersionString ? 0 : 1;
}
