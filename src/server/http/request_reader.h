// One request, from bytes as they come. Limits are checked before anything is kept, and what could
// be read in two ways (two lengths, a length and chunks) is refused: after it the beginning of the
// next request would be unknown.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "server/http/message.h"
#include "sluice/server.hpp"

namespace sluice::server {

class RequestReader {
 public:
  // The problem of the request: a status, 0 for nothing, and in words. The connection cannot go on.
  struct Problem {
    int status = 0;
    std::string what = {};
  };

  // Fills `request`, all but its id; both outlive it.
  RequestReader(const HttpLimits& limits, HttpRequest& request);
  ~RequestReader();

  // Takes from the front of `bytes` and returns how many. It stops after the head, after the
  // request, and where it needs more; then the rest is passed again, with what follows.
  size_t Read(std::string_view bytes);

  const Problem& problem() const;
  bool has_head() const;
  bool is_complete() const;

  // Properties of the head, once it is complete:
  bool is_http_1_1() const;
  bool keeps_alive() const;
  bool expects_continue() const;

  size_t body_bytes() const;   // so far
  size_t body_length() const;  // as the head has it; 0: it does not

 private:
  class Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace sluice::server
