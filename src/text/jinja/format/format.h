// Texts by a format: Python's % and str.format.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

// "%s is %d" % (a, b): a tuple has the values, a dict those of %(name)s, and anything else is one.
// What a format that is Markup takes in is escaped.
Value Formatted(Run& run, const Value& format, const Value& given);

// "{} is {0.name!r:>{width}}".format(...), as far as Jinja's sandbox lets it go; `mapping` has the
// names where it is not null.
Value FormattedFields(Run& run, const Value& format, const List& positional,
                      const std::vector<std::pair<std::string, Value>>& named,
                      const Value* mapping);

// Python's format(value, spec).
std::string FormattedValue(Run& run, const Value& value, std::string_view spec);

}  // namespace sluice::text::jinja
