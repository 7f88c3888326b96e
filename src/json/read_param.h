// One sampling parameter out of an object that has other fields as well.
#pragma once

#include <string_view>

#include "json/value_reader.h"
#include "sluice/params.hpp"

namespace sluice::json {

// Names of all parameters, as params_json.h has them.
inline constexpr std::string_view kParamNames[] = {
#define SLUICE_SELECT_PARAM(type, field, default_value, range, json, help) json,
#define SLUICE_REQUEST_PARAM(type, field, default_value, range, json, help) json,
#define SLUICE_OPTIONAL_PARAM(type, field, range, json, help) json,
#define SLUICE_CHOICE_PARAM(type, field, default_value, json, help) json,
#define SLUICE_LIST_PARAM(type, field, json, help) json,
#include "sluice/params.def"
};

// Whether there is a parameter of that name.
bool IsParam(std::string_view name);

// Reads it; false where it is none. `value` is not null. Throws Error as ParseParams does.
bool ReadParam(std::string_view name, Json value, SamplingParams& params);

}  // namespace sluice::json
