// The contents of the library, by name and one by one: version, backends, algorithms, profiles.
#include <iterator>
#include <string_view>

#include "capi/convert.h"
#include "capi/guard.h"
#include "support/check.h"

using namespace sluice;        // NOLINT(google-build-using-namespace): the functions are outside
using namespace sluice::capi;  // NOLINT(google-build-using-namespace)

namespace {

// Takes a string literal, as all texts of the library's tables are: it ends in a zero.
const char* Text(std::string_view literal) { return literal.empty() ? "" : literal.data(); }

void CheckIndex(size_t index, size_t count) {
  if (index < count) return;
  const int64_t shown = index > INT64_MAX ? INT64_MAX : static_cast<int64_t>(index);
  CheckInRange("index", shown, 0, static_cast<int64_t>(count) - 1);
}

}  // namespace

uint32_t sluice_abi_version() { return SLUICE_ABI_VERSION; }
const char* sluice_version() { return Text(kVersionString); }

const char* sluice_row_status_name(sluice_row_status status) {
  return Text(Name(static_cast<RowStatus>(status)));
}
const char* sluice_dtype_name(sluice_dtype dtype) { return Text(Name(static_cast<DType>(dtype))); }

size_t sluice_backend_count() { return Backends().size(); }

sluice_status sluice_backend_at(size_t index, sluice_backend_info* info) {
  return Guarded([&] {
    sluice_backend_info& result = Deref("info", info);
    CheckIndex(index, Backends().size());
    const BackendInfo& known = Backends()[index];
    result = {static_cast<sluice_backend>(known.backend), known.available, Text(known.name),
              Text(known.reason)};
  });
}

sluice_status sluice_backend_by_name(const char* name, sluice_backend* backend) {
  return Guarded([&] {
    sluice_backend& result = Deref("backend", backend);
    result = static_cast<sluice_backend>(BackendByName(&Deref("name", name)));
  });
}

size_t sluice_algorithm_count() { return SelectAlgorithms().size(); }

sluice_status sluice_algorithm_at(size_t index, sluice_algorithm_info* info) {
  return Guarded([&] {
    sluice_algorithm_info& result = Deref("info", info);
    CheckIndex(index, SelectAlgorithms().size());
    const AlgorithmInfo& known = SelectAlgorithms()[index];
    result = {static_cast<sluice_algorithm>(known.algorithm), Text(known.name),
              Text(known.when_to_use), Text(known.limits), Text(known.source)};
  });
}

sluice_status sluice_algorithm_by_name(const char* name, sluice_algorithm* algorithm) {
  return Guarded([&] {
    sluice_algorithm& result = Deref("algorithm", algorithm);
    result = static_cast<sluice_algorithm>(SelectAlgorithmByName(&Deref("name", name)));
  });
}

size_t sluice_profile_count() { return std::size(kProfiles); }

sluice_status sluice_profile_name_at(size_t index, const char** name) {
  return Guarded([&] {
    const char*& result = Deref("name", name);
    CheckIndex(index, std::size(kProfiles));
    result = Text(kProfiles[index].name);
  });
}

sluice_status sluice_profile_by_name(const char* name, sluice_profile* profile) {
  return Guarded([&] {
    sluice_profile& result = Deref("profile", profile);
    result = std::bit_cast<sluice_profile>(ProfileByName(&Deref("name", name)));
  });
}

sluice_status sluice_validate(const sluice_sampling_params* params, int64_t vocab,
                              const sluice_limits* limits) {
  return Guarded([&] {
    Validate(ToSamplingParams(Deref("params", params)), vocab,
             limits == nullptr ? Limits{} : ToCpp(*limits));
  });
}
