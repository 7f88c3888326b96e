// Grammars come in two languages, and fields and flags take either.
#pragma once

#include <string_view>

#include "sluice/grammar.hpp"

namespace sluice::grammar {

// Rules of GBNF have "::=" between name and body, those of Lark a colon.
inline GrammarKind LanguageOf(std::string_view text) {
  return text.find("::=") == std::string_view::npos ? GrammarKind::kLark : GrammarKind::kEbnf;
}

}  // namespace sluice::grammar
