// The page at "/", for people who open the server's address in a browser: page.html.
#pragma once

#include "server/http/message.h"

namespace sluice::server {

// Nothing but its own script and style runs in it: they carry a number that only this response
// knows.
HttpResponse Page();

}  // namespace sluice::server
