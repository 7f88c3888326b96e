// What this copy of Sluice was built from and what it runs on, for results of benchmarks and for
// bug reports. Nothing in it names a machine or a person.
#pragma once

#include <string>
#include <string_view>

namespace sluice {

struct BuildFacts {
  std::string_view commit;  // when the build was configured, "-dirty" with changes; empty: unknown
  std::string_view compiler;   // "gcc 12.2.0"
  std::string_view cuda;       // the version of the toolkit, or empty
  std::string_view libraries;  // an object of JSON: the version of each library by its name
  bool has_assertions = false;
};
BuildFacts ThisBuild();

struct MachineFacts {
  std::string cpu;
  std::string system;  // "Linux 6.1.0 x86_64"
  std::string libc;    // "glibc 2.36", or empty
  unsigned threads = 0;
};
MachineFacts ThisMachine();

}  // namespace sluice
