// The head of a response.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/http/message.h"

namespace sluice::server {

struct HeadStyle {
  // How the peer learns where the body ends.
  enum class Body : uint8_t { kNone, kLength, kChunked, kUntilClose };
  enum class Connection : uint8_t { kUnsaid, kClose, kKeepAlive };

  Body body = Body::kLength;
  Connection connection = Connection::kUnsaid;
};

bool HasNoBody(int status);  // whatever the request: 1xx, 204, 304

// `date` as RFC 9110 has it.
void AppendHead(const HttpResponse& response, HeadStyle style, std::string_view id,
                std::string_view date, std::string& out);

}  // namespace sluice::server
