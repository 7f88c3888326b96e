// Whole files, and errors that say what is wrong with one.
#pragma once

#include <string>
#include <string_view>

namespace sluice::cli {

// Standard input for "-". Throws Error naming `parameter` and the path when it cannot be read or
// has more than 64 MiB.
std::string ReadTextFile(std::string_view parameter, const std::string& path);

// Why a file at `path` cannot be read, in words; empty when nothing is known to be wrong with it.
std::string WhyUnreadable(const std::string& path);

}  // namespace sluice::cli
