// An HTTP request and a response, as plain text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/body_share.h"

namespace sluice::server {

struct ApiError;

struct HttpField {
  std::string name;
  std::string value;

  bool IsNamed(std::string_view other) const;  // in any case of letters
};

struct HttpBody {
  std::string text;
  BodyShare share;
};

struct HttpRequest {
  std::string method;
  std::string path;   // percent-decoded
  std::string query;  // after the question mark, as it came
  std::vector<HttpField> fields;
  std::string body;   // has room for the padding that simdjson reads after it
  BodyShare share;    // of the body
  uint64_t peer = 0;  // see PeerOf
  std::string id;     // X-Request-Id, the client's or one of ours; every response has it

  // The first one of this name, in any case of letters.
  std::optional<std::string_view> Field(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<HttpField> fields = {};  // in addition to the type, the length and X-Request-Id
  bool closes = false;                 // the connection, after the response
  std::shared_ptr<const ApiError> error = {};  // that the body has; null: none
};

}  // namespace sluice::server
