// Command-line flags for sampling parameters, expanded from params.def.
#pragma once

#include <string>
#include <string_view>

#include "sluice/params.hpp"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// A flag and an environment variable for every parameter: top_k is --top-k and SLUICE_TOP_K. What
// `params` holds is the default. Before them --params, a file of JSON that they override.
// Text that is no value of the parameter throws Error; the ranges are left to Validate.
//
//   lists of ids  1,2      words  1:2,3 (tokens by colons)      bias  17:2.5,18:-100
void AddParamFlags(CLI::App& command, SamplingParams& params);

// Shows these values as the defaults in the command's help.
void ShowParamDefaults(CLI::App& command, const SamplingParams& params);

// What the file of --params says becomes part of `params`.
void ReadParamsFile(const std::string& path, SamplingParams& params);

// The flags that give `params` in a command that starts from `base`. What is at its default in both
// is left out.
std::string FlagsOf(const SamplingParams& params, const SamplingParams& base);

// "--top-k" and "SLUICE_TOP_K" of top_k.
std::string FlagName(std::string_view name);
std::string EnvironmentName(std::string_view name);

// The name of one of kProfiles, or "custom".
std::string_view NameOf(const Profile& profile);

}  // namespace sluice::cli
