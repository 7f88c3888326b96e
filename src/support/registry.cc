#include "support/registry.h"

#include <array>
#include <cstdlib>
#include <string>

#include "support/check.h"

#if SLUICE_HAS_CPU
#include <cpuid.h>
#endif

namespace sluice {
namespace {

#if SLUICE_HAS_CPU
bool HasF16c() {  // not a word of every compiler's __builtin_cpu_supports
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// What Highway's targets of these names use.
bool HasAvx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c();
}
bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd");
}
constexpr std::string_view kWhyNot = "this processor does not have these vectors";
#else
bool HasAvx2() { return false; }
bool HasAvx512() { return false; }
constexpr std::string_view kWhyNot = "built without Highway (SLUICE_CPU is off)";
#endif

const std::array<BackendInfo, 3>& KnownBackends() {
  static const std::array<BackendInfo, 3> known = {{
      {Backend::kCpuAvx512, "cpu-avx512", HasAvx512(), HasAvx512() ? "" : kWhyNot},
      {Backend::kCpuAvx2, "cpu-avx2", HasAvx2(), HasAvx2() ? "" : kWhyNot},
      {Backend::kRef, "ref", true, ""},
  }};
  return known;
}

// The environment is read once: a host may change it while other threads call.
Backend AutomaticBackend() {
  static const Backend automatic = [] {
    const char* forced = std::getenv("SLUICE_BACKEND");
    const Backend named = forced == nullptr ? Backend::kAuto : BackendByName(forced);
    if (named != Backend::kAuto) return named;
    for (const BackendInfo& info : KnownBackends()) {
      if (info.available) return info.backend;
    }
    return Backend::kRef;
  }();
  return automatic;
}

}  // namespace

std::span<const BackendInfo> Backends() { return KnownBackends(); }

Backend BackendByName(std::string_view name) {
  if (name.empty() || name == "auto") return Backend::kAuto;
  for (const BackendInfo& info : KnownBackends()) {
    const bool is_widest_cpu = name == "cpu" && info.available && info.backend != Backend::kRef;
    if (info.name == name || is_widest_cpu) return info.backend;
  }
  if (name == "cpu") {
    throw Error(ErrorCode::kUnavailable, "backend", ToText(name), std::string(kWhyNot));
  }
  std::string known = "auto, cpu";
  for (const BackendInfo& info : KnownBackends()) known.append(", ").append(info.name);
  ThrowInvalid("backend", ToText(name), known);
}

Backend ResolveBackend(Backend requested) {
  const Backend backend = requested == Backend::kAuto ? AutomaticBackend() : requested;
  for (const BackendInfo& info : KnownBackends()) {
    if (info.backend != backend) continue;
    if (info.available) return backend;
    throw Error(ErrorCode::kUnavailable, "backend", ToText(info.name), std::string(info.reason));
  }
  ThrowInvalid("backend", ToText(static_cast<int64_t>(backend)), "a backend of Backends()");
}

}  // namespace sluice
