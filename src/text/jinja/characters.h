// Kinds of characters as Python's str has them.
#pragma once

#include <cstdint>

namespace sluice::text::jinja {

bool IsPythonSpace(uint32_t c);    // str.isspace: Unicode's, and four separators of ASCII
bool IsPythonDigit(uint32_t c);    // str.isdigit
bool IsPythonNumeric(uint32_t c);  // str.isnumeric
bool IsPythonAlnum(uint32_t c);    // str.isalnum
bool BeginsIdentifier(uint32_t c);
bool IsInIdentifier(uint32_t c);

}  // namespace sluice::text::jinja
