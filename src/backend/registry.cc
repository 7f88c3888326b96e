#include "backend/registry.h"

#include <cstdlib>
#include <string>

#include "support/check.h"

namespace sluice {
namespace {

constexpr BackendInfo kBackends[] = {
    {Backend::kRef, "ref", true, ""},
};

Backend AutomaticBackend() {
  const char* forced = std::getenv("SLUICE_BACKEND");
  const Backend named = forced == nullptr ? Backend::kAuto : BackendByName(forced);
  if (named != Backend::kAuto) return named;
  for (const BackendInfo& info : kBackends) {
    if (info.available) return info.backend;
  }
  return Backend::kRef;
}

}  // namespace

std::span<const BackendInfo> Backends() { return kBackends; }

Backend BackendByName(std::string_view name) {
  std::string known = "auto";
  if (name.empty() || name == "auto") return Backend::kAuto;
  for (const BackendInfo& info : kBackends) {
    if (info.name == name) return info.backend;
    known += ", " + std::string(info.name);
  }
  ThrowInvalid("backend", ToText(name), known);
}

Backend ResolveBackend(Backend requested) {
  const Backend backend = requested == Backend::kAuto ? AutomaticBackend() : requested;
  for (const BackendInfo& info : kBackends) {
    if (info.backend != backend) continue;
    if (info.available) return backend;
    throw Error(ErrorCode::kUnavailable, "backend", ToText(info.name), std::string(info.reason));
  }
  ThrowInvalid("backend", ToText(static_cast<int64_t>(backend)), "a backend of Backends()");
}

}  // namespace sluice
