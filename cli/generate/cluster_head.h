// --head clusters: the rows of a model's output matrix in clusters, built or read from a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/progress_line.h"
#include "sluice/checkpoint.hpp"
#include "sluice/generator.hpp"

namespace CLI {
class App;
}

namespace sluice::cli {

// Adds --head and --head-file.
void AddHeadFlags(CLI::App& command, HeadChoice& head, std::string& file);

struct ClusterHeadReport {
  int64_t clusters = 0;
  int64_t fine_tokens = 0;  // in clusters of their own: numbers and symbols
  int64_t bytes = 0;        // of the clusters, in memory as in the file
  int64_t build_ns = 0;     // 0: they were read
  int64_t load_ns = 0;      // 0: they were built
};

// Null for any other choice. An empty `file`: they are built. Otherwise they are read from it, or
// built and written to it where it does not exist. Throws Error for a file of another head, and for
// a file with another choice.
std::shared_ptr<TopKHead> ClusterHeadFor(HeadChoice choice, const std::string& file,
                                         const Checkpoint& checkpoint, Backend backend,
                                         const ParallelFor& parallel, ProgressLine& progress,
                                         ClusterHeadReport& report);

}  // namespace sluice::cli
