// One sampling parameter out of an object that has other fields as well.
#pragma once

#include <string_view>

#include "json/value_reader.h"
#include "sluice/params.hpp"

namespace sluice::json {

// Whether params_json.h has a parameter of that name.
bool IsParam(std::string_view name);

// Reads it; false where it is none. `value` is not null. Throws Error as ParseParams does.
bool ReadParam(std::string_view name, Json value, SamplingParams& params);

}  // namespace sluice::json
