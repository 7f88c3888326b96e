// The line of a request in an access log: one JSON object, without its end of line.
#pragma once

#include <chrono>
#include <string>

#include "server/http/message.h"

namespace sluice::server {

struct AccessEntry {
  int status = 0;
  bool is_complete = true;  // the answer was written as a whole
  std::chrono::system_clock::time_point ended = {};
  std::chrono::nanoseconds took{0};  // from the end of the request to the end of the answer
};

// {"time", "id", "method", "path", "status", "complete", "seconds"}. The path is without its query;
// it is cut after 1024 bytes, and at the first byte that is no UTF-8. No key and no body is in it.
std::string AccessLine(const HttpRequest& request, const AccessEntry& entry);

}  // namespace sluice::server
