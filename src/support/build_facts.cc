#include "support/build_facts.h"

#include <sys/utsname.h>

#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

#include <fstream>
#include <thread>

#include "build_values.h"

namespace sluice {
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

BuildFacts ThisBuild() {
  BuildFacts build{.commit = SLUICE_BUILD_COMMIT,
#if defined(__clang__)
                   .compiler = "clang " __clang_version__,
#else
                   .compiler = "gcc " __VERSION__,
#endif
                   .cuda = SLUICE_BUILD_CUDA,
                   .libraries = SLUICE_BUILD_LIBRARIES};
#ifndef NDEBUG
  build.has_assertions = true;
#endif
  return build;
}

MachineFacts ThisMachine() {
  utsname system = {};
  uname(&system);
  MachineFacts machine{
      .cpu = CpuModel(system.machine),
      .system = std::string(system.sysname) + " " + system.release + " " + system.machine,
      .libc = {},
      .threads = std::thread::hardware_concurrency()};
#ifdef __GLIBC__
  machine.libc = std::string("glibc ") + gnu_get_libc_version();
#endif
  return machine;
}

}  // namespace sluice
