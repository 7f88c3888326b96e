// Fields that OpenAI's, vLLM's or llama.cpp's servers have and this one cannot do, or has in
// another API. They are refused where they would change the answer, with the name that does it in
// the API of the request where one does; where they have no effect (null, false, empty, a penalty
// of 1) they are passed over.
#pragma once

#include <string>
#include <string_view>

#include "server/api/request/completion_request.h"
#include "server/api/request/request_value.h"

namespace sluice::server {

bool IsUnsupported(std::string_view name);
// Throws ApiFailure with the code unsupported_parameter.
void RefuseUnsupported(Api api, const RequestValue& value);
// A field of one API, with what does it there; `neutral` has no effect.
void RefuseUnsupported(const RequestValue& value, std::string_view hint, double neutral = 0);
// name = "value" is not supported: hint
[[noreturn]] void ThrowUnsupported(const std::string& name, std::string_view value,
                                   std::string_view hint);

// Fields that change nothing here.
bool IsIgnored(std::string_view name);

}  // namespace sluice::server
