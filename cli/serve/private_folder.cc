#include "cli/serve/private_folder.h"

#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/serve/stale_folders.h"
#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {

PrivateFolder::PrivateFolder() {
  constexpr size_t kLongest = 80;  // of the 107 bytes that the name of a socket may have
  const char* const variable = std::getenv("TMPDIR");
  const std::string chosen = variable == nullptr ? "" : variable;
  const std::string parent = chosen.empty() || chosen.size() > kLongest ? "/tmp" : chosen;
  ClearStaleFolders(parent);
  path_ = parent + "/" + kFolderPattern;
  if (::mkdtemp(path_.data()) == nullptr) {
    throw Error(ErrorCode::kUnavailable, "TMPDIR",
                Quoted(path_) + " (" + std::strerror(errno) + ")", "a folder that can be written");
  }
  lock_ = LockFolder(path_);
}

PrivateFolder::~PrivateFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

}  // namespace sluice::cli
