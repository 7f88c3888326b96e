// The sampling parameters as JSON Schema, from params.def.
#pragma once

#include <vector>

#include "server/api/request/request_fields.h"

namespace sluice::server {

std::vector<FieldSchema> ParamSchemas();

}  // namespace sluice::server
