// The description of the API: as OpenAPI 3.1 at /openapi.json, and as a page at /docs. Both are
// made of the tables of routes and of the fields that requests have, so that neither says what the
// server does not do.
#pragma once

#include <string>

#include "server/http/message.h"

namespace sluice::server {

std::string OpenApiText();
HttpResponse DocsPage();  // without a script, and with nothing of another address

}  // namespace sluice::server
