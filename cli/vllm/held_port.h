// A port of this machine that no other program gets until it is used.
#pragma once

#include <cstdint>
#include <string>

#include "link/file_descriptor.h"

namespace sluice::cli {

// A socket that has the port and does not listen. Another one that reuses addresses, as those of
// ZeroMQ do, can listen there; all others find the port taken.
class HeldPort {
 public:
  // Throws std::system_error where the address has none.
  explicit HeldPort(const std::string& address);

  uint16_t number() const { return number_; }

 private:
  link::FileDescriptor socket_;
  uint16_t number_ = 0;
};

}  // namespace sluice::cli
