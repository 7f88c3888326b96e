// Command-line flags for sampling parameters, expanded from params.def.
#pragma once

#include <string>
#include <string_view>

#include "sluice/params.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// A flag and an environment variable for every number that a request is made of, for its seed and
// its profile: top_k is --top-k and SLUICE_TOP_K. What `params` holds is the default.
// Text that is no number and an unknown profile throw Error; the ranges are left to Validate.
void AddParamFlags(CLI::App& command, SamplingParams& params);

// The flags that give `params` in a command that starts from `base`. What is at its default in both
// is left out.
std::string FlagsOf(const SamplingParams& params, const SamplingParams& base);

// The name of one of kProfiles.
std::string_view NameOf(const Profile& profile);

}  // namespace sluice::cli
