// What an output has to match, from the keywords of a call, and the grammar engine.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "python/values/keywords.h"
#include "sluice/engine_messages.hpp"
#include "sluice/grammar.hpp"

namespace sluice::python {

namespace nb = nanobind;

inline constexpr Keywords kGrammarKeywords = {Keyword::json_schema, Keyword::json_object,
                                              Keyword::regex, Keyword::grammar, Keyword::choices};

// Of at most one of these; none where there is none.
std::optional<OutputGrammar> OutputGrammarFrom(const Arguments& arguments);

// `folder`: a path, which has to have it; or None, for SLUICE_GRAMMAR_LIBRARY, which has to have it
// too, or the one that is installed, if any.
std::optional<GrammarLibrary> GrammarLibraryFrom(nb::handle folder);

}  // namespace sluice::python
