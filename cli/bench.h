// sluice bench: times what Sluice does, next to the floor and to its peers.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace sluice::cli {

// Empty lists are everything that there is. The command line has checked the names.
struct BenchSelectOptions {
  int64_t vocab = 128256;
  std::vector<std::string> tasks;
  std::vector<std::string> distributions;
  std::vector<std::string> dtypes;
  std::vector<std::string> backends;
  std::string json_path;  // empty: none
  bool is_quick = false;
};

std::vector<std::string> BenchTaskNames();
std::vector<std::string> BenchDistributionNames();
inline const std::vector<std::string> kBenchDTypeNames = {"fp32", "bf16"};

// Writes the groups as they are done. Throws when the JSON file cannot be written, and, after
// everything is printed, when a timed result was not the reference's.
void RunBenchSelect(const BenchSelectOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
