// Which names a server may be called by, against DNS rebinding: a page of the web with a name that
// begins to mean 127.0.0.1 may send what it likes to a server there, from the browser of a user of
// this machine. It cannot choose the header Host, which has the page's name.
//
// The check is on where no key is needed and the server listens at a loopback address. Names of
// this machine (localhost and those that end with .localhost), IP addresses and the names of
// `allowed` pass, in any case of letters and with any port; "*" allows every one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sluice/server.hpp"

namespace sluice::server {

class HostCheck {
 public:
  explicit HostCheck(const ServerOptions& options);

  // `host`: as the header has it; empty passes, which browsers do not send.
  bool Passes(std::string_view host) const;

 private:
  bool is_on_;
  std::vector<std::string> allowed_;  // in small letters
};

}  // namespace sluice::server
