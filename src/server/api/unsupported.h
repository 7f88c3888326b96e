// Fields that OpenAI's or vLLM's servers know and this one cannot do. They are refused where they
// would change the answer; where they ask for nothing (null, false, empty) they are passed over.
#pragma once

#include <string_view>

#include "server/api/request_value.h"

namespace sluice::server {

bool IsUnsupported(std::string_view name);
// Throws ApiFailure with the code unsupported_parameter.
void RefuseUnsupported(const RequestValue& value);

// Fields that change nothing here.
bool IsIgnored(std::string_view name);

}  // namespace sluice::server
