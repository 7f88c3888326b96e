// What the grammar engine says of a text, as one line for a client.
#pragma once

#include <string>
#include <string_view>

namespace sluice::grammar {

// "[10:00:00] /a/b.cc:1: Check failed: (x) is false: Reason at line 1. The JSON string is: {" is
// "Reason at line 1".
std::string CleanReason(std::string_view message);

// The beginning of a text, quoted.
std::string Excerpt(std::string_view text);

}  // namespace sluice::grammar
