// Tokens of a template to its tree.
#pragma once

#include <string_view>

#include "text/jinja/syntax/ast.h"

namespace sluice::text::jinja {

// Throws Error naming `template` and the line; for nesting deeper than max_depth as well.
Block Parse(std::string_view source, int32_t max_depth);

}  // namespace sluice::text::jinja
