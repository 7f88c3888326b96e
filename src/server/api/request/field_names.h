// Names of fields that a request has and a reader does not accept.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/api_error.h"
#include "server/http/message.h"

namespace sluice::server {

// The error of a server that takes known fields alone (--strict-fields). `unknown` is not empty.
ApiError UnknownField(const std::vector<std::string>& unknown,
                      std::span<const std::string_view> known);

// As the header X-Ignored-Fields has them: at most kMostHeaderBytes, and "..." where there are
// more. What is no letter, digit, "_", "-", ".", "[" or "]" becomes "?": names are a client's.
inline constexpr size_t kMostHeaderBytes = 512;
std::string IgnoredFieldsText(const std::vector<std::string>& unknown);

// Adds that header to a response of a request with unknown fields.
void AddIgnoredFields(const std::vector<std::string>& unknown, HttpResponse& response);

}  // namespace sluice::server
