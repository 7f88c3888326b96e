#include "cli/generate/cluster_head.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <vector>

#include "cli/flags/choices.h"
#include "sluice/research/cluster_head.hpp"
#include "support/check.h"

namespace sluice::cli {
namespace {

int64_t NanosecondsFrom(std::chrono::steady_clock::time_point start) {
  const auto time = std::chrono::steady_clock::now() - start;
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

// Of a file that does not exist.
void CheckCanWrite(const std::string& file) {
  std::error_code ignored;
  const bool can_write = std::ofstream(file, std::ios::app).is_open();
  std::filesystem::remove(file, ignored);
  if (!can_write) {
    ThrowInvalid("head-file", sluice::ToText(file), "a file that can be written");
  }
}

}  // namespace

void AddHeadFlags(CLI::App& command, HeadChoice& head, std::string& file) {
  command
      .add_option_function<std::string>(
          "--head", [&head](const std::string& name) { head = HeadChoiceByName(name); },
          "which head computes the logits; the tokens are the same")
      ->default_str("auto")
      ->type_name(ChoiceType({"auto", "dense", "dither4", "strict", "clusters"}));
  command
      .add_option("--head-file", file,
                  "with --head clusters: read the clusters from this file, or build them and write "
                  "it where it does not exist")
      ->type_name("FILE");
}

std::shared_ptr<TopKHead> ClusterHeadFor(HeadChoice choice, const std::string& file,
                                         const Checkpoint& checkpoint, Backend backend,
                                         const ParallelFor& parallel, ProgressLine& progress,
                                         ClusterHeadReport& report) {
  if (choice != HeadChoice::kClusters) {
    if (file.empty()) return nullptr;
    ThrowInvalid("head-file", sluice::ToText(file),
                 "none with --head " + std::string(Name(choice)) + ", only with --head clusters");
  }
  const DenseHead& head = checkpoint.head();
  const auto start = std::chrono::steady_clock::now();
  const auto make = [&](research::HeadClusters clusters) {
    report.clusters = clusters.clusters();
    report.bytes = static_cast<int64_t>(clusters.bytes());
    return std::make_shared<research::ClusterHead>(head, std::move(clusters),
                                                   research::ClusterBudget{}, backend);
  };
  const std::vector<int32_t> fine = research::FineTokens(checkpoint.tokenizer(), head.weight.rows);
  report.fine_tokens = std::ssize(fine);
  if (!file.empty() && std::filesystem::exists(file)) {
    const auto begin = std::chrono::steady_clock::now();
    auto clusters = research::HeadClusters::Load(file, head, parallel);
    report.load_ns = NanosecondsFrom(begin);
    return make(std::move(clusters));
  }
  if (!file.empty()) CheckCanWrite(file);  // before the minutes that the build takes
  research::ClusterOptions options = research::WithFineTokens({}, fine, head.weight.rows);
  options.progress = [](void* context, double share) {
    static_cast<ProgressLine*>(context)->Show("building the head's clusters",
                                              static_cast<int64_t>(1000 * share), 1000);
  };
  options.progress_context = &progress;
  auto clusters = research::HeadClusters::Build(head, options, parallel);
  report.build_ns = NanosecondsFrom(start);
  progress.Clear();
  if (!file.empty()) clusters.Save(file);
  return make(std::move(clusters));
}

}  // namespace sluice::cli
