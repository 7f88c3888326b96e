// Keys that a server accepts: from a file with one a line.
#pragma once

#include <string>
#include <vector>

namespace sluice::cli {

// Empty lines and those that begin with # are passed over. Throws Error naming the file and the
// line, but never a key.
std::vector<std::string> ReadApiKeys(const std::string& path);

}  // namespace sluice::cli
