// The path and the query of a request's target.
#pragma once

#include <string>
#include <string_view>

namespace sluice::server {

// "/path?query", "http://host/path?query" or "*". False for what is none of these, for bytes that
// are not ASCII, and for a percent sign that no two hexadecimal digits follow.
bool ReadTarget(std::string_view target, std::string& path, std::string& query);

}  // namespace sluice::server
