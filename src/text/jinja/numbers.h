// The filters int and float.
#pragma once

#include "text/jinja/run.h"

namespace sluice::text::jinja {

Value ToInteger(Run& run, const Value& value, const Arguments& arguments);
Value ToReal(Run& run, const Value& value, const Arguments& arguments);

}  // namespace sluice::text::jinja
