// The fields that requests have, for /openapi.json: from the tables that read them.
#pragma once

#include <vector>

#include "server/api/request/completion_request.h"
#include "server/api/request/request_fields.h"

namespace sluice::server {

std::vector<FieldSchema> CompletionSchemas(Api api);
std::vector<FieldSchema> TokenizeSchemas();
std::vector<FieldSchema> DetokenizeSchemas();

}  // namespace sluice::server
