// The page at "/", for browsers at the server's address: page.html.
#pragma once

#include "server/http/message.h"

namespace sluice::server {

// Nothing but its own script and style runs in it: they carry a number that only this response
// has.
HttpResponse Page();

}  // namespace sluice::server
