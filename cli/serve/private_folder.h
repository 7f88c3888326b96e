// A folder that no other user of this machine may look into, until the end of its life.
#pragma once

#include <string>

#include "link/file_descriptor.h"

namespace sluice::cli {

class PrivateFolder {
 public:
  // In TMPDIR, unless the names of sockets there would be too long, or in /tmp. Removes the folders
  // that killed processes left there (cli/serve/stale_folders.h).
  PrivateFolder();
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  link::FileDescriptor lock_;
};

}  // namespace sluice::cli
