// What is wrong with a command line, as a whole sentence.
#pragma once

#include <stdexcept>

namespace sluice::cli {

// For what has no parameter, value and range to name, as a file that does not exist. Exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sluice::cli
