#include "bench/support/environment.h"

#include <sys/utsname.h>

#include <fstream>
#include <thread>

#ifndef SLUICE_BENCH_COMMIT
#define SLUICE_BENCH_COMMIT "unknown"
#endif

namespace sluice::bench {
namespace {

// Linux names the model here; elsewhere the architecture has to do.
std::string CpuModel(const std::string& architecture) {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return architecture;
}

}  // namespace

Environment ThisEnvironment() {
  Environment environment;
  utsname system = {};
  uname(&system);
  environment.cpu = CpuModel(system.machine);
  environment.cores = std::thread::hardware_concurrency();
#if defined(__clang__)
  environment.compiler = std::string("clang ") + __clang_version__;
#else
  environment.compiler = std::string("gcc ") + __VERSION__;
#endif
#ifndef NDEBUG
  environment.compiler += " with assertions";
#endif
  environment.os = std::string(system.sysname) + " " + system.release + " " + system.machine;
  environment.commit = SLUICE_BENCH_COMMIT;
  return environment;
}

}  // namespace sluice::bench
