// Signatures of calls on rows, for help() and for the stub: the parameters come from params.def.
#pragma once

#include <string_view>

namespace sluice::python {

// "def NAME(FIRST, params=None, *, <sampling parameters>, OWN, <execution>) -> RESULT", kept for
// the life of the program. FIRST and OWN are written as in Python, without a comma at their ends.
const char* RowSignature(std::string_view name, std::string_view first, std::string_view own,
                         std::string_view result);

// HEAD, <every parameter of a request> ) -> RESULT, kept likewise. HEAD is written as in Python, up
// to where the parameters come.
const char* RequestSignature(std::string_view head, std::string_view result);

}  // namespace sluice::python
