// Folders of servers that were killed: they had no time to clear theirs away.
#pragma once

#include <string>

#include "link/file_descriptor.h"

namespace sluice::cli {

// The last six letters are mkdtemp's.
inline constexpr const char* kFolderPattern = "sluice-XXXXXX";

// Marks a folder as one that a living process has: a file in it, `lock`, which is locked (flock) as
// long as the descriptor is open. The file gets its name when it is locked already, so that one of
// this name without a lock has no living owner. Not open where the file system has no locks.
link::FileDescriptor LockFolder(const std::string& folder);

// Removes folders of kFolderPattern in `parent` that belong to this user, are closed to other users
// and have a `lock` that no process holds. Follows no symbolic link, and takes nothing from a
// folder that has other files than such a server makes. Two processes may do it at once.
void ClearStaleFolders(const std::string& parent);

}  // namespace sluice::cli
