// What a benchmark ran on and what it was built from. Nothing in it names a machine or a person.
#pragma once

#include <string>

namespace sluice::bench {

struct Environment {
  std::string cpu;
  unsigned cores;
  std::string compiler;
  std::string os;
  std::string
      commit;  // when the build was configured; "-dirty" with uncommitted changes; "unknown"
};

Environment ThisEnvironment();

}  // namespace sluice::bench
