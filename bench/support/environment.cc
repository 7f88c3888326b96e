#include "bench/support/environment.h"

#include "support/build_facts.h"

namespace sluice::bench {

Environment ThisEnvironment() {
  const BuildFacts build = ThisBuild();
  const MachineFacts machine = ThisMachine();
  Environment environment = {.cpu = machine.cpu,
                             .cores = machine.threads,
                             .compiler = std::string(build.compiler),
                             .os = machine.system,
                             .commit = std::string(build.commit)};
  if (build.has_assertions) environment.compiler += " with assertions";
  if (environment.commit.empty()) environment.commit = "unknown";
  return environment;
}

}  // namespace sluice::bench
