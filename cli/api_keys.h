// Keys that a server asks for: from a file with one a line.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace sluice::cli {

// Empty lines and those that begin with # are passed over. Throws Error naming the file and the
// line, but never a key.
std::vector<std::string> ReadApiKeys(const std::string& path);

// Throws Error for what no header can carry. `where`: the flag, or a file and a line.
void CheckApiKey(const std::string& where, const std::string& key);

}  // namespace sluice::cli
