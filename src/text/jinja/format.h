// Python's % of texts: "%s is %d" % (a, b).
#pragma once

#include <string>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

// Named arguments, or one dict, are for %(name)s. Throws as Python does when arguments are missing
// or left over.
Value Formatted(Run& run, const std::string& format, const Arguments& arguments);

}  // namespace sluice::text::jinja
