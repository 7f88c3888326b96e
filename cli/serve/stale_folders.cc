#include "cli/serve/stale_folders.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>
#include <string_view>
#include <vector>

namespace sluice::cli {
namespace {

using link::FileDescriptor;

constexpr const char* kLock = "lock";
constexpr const char* kUnlocked = "lock.new";
constexpr std::string_view kFiles[] = {"engine", kLock, kUnlocked};

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

// Without "." and "..".
std::vector<std::string> NamesIn(int folder) {
  std::vector<std::string> names;
  // Closedir closes a descriptor of its own.
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, CloseFolder> entries(copy < 0 ? nullptr : ::fdopendir(copy));
  if (entries == nullptr) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  while (const dirent* const entry = ::readdir(entries.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  return names;
}

bool HasPattern(std::string_view name) {
  const std::string_view pattern = kFolderPattern;
  const size_t letters = pattern.find('X');
  return name.size() == pattern.size() && name.starts_with(pattern.substr(0, letters)) &&
         std::ranges::all_of(name.substr(letters), [](unsigned char c) { return std::isalnum(c); });
}

bool IsPrivate(const FileDescriptor& file, mode_t type) {
  struct stat status = {};
  return ::fstat(file.get(), &status) == 0 && (status.st_mode & S_IFMT) == type &&
         status.st_uid == ::geteuid() && (status.st_mode & 077) == 0;
}

void ClearIfStale(int parent, const char* name) {
  constexpr int kFlags = O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  const FileDescriptor folder(::openat(parent, name, O_RDONLY | O_DIRECTORY | kFlags));
  if (!folder.IsOpen() || !IsPrivate(folder, S_IFDIR)) return;
  const FileDescriptor lock(::openat(folder.get(), kLock, O_RDWR | kFlags));
  if (!lock.IsOpen() || !IsPrivate(lock, S_IFREG)) return;
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return;
  struct stat status = {};
  // Another process has cleared it away since it was opened, and the name may be another's now.
  if (::fstat(lock.get(), &status) != 0 || status.st_nlink == 0) return;
  for (const std::string& file : NamesIn(folder.get())) {
    if (std::ranges::find(kFiles, file) == std::end(kFiles)) return;
  }
  for (const std::string_view file : kFiles) ::unlinkat(folder.get(), file.data(), 0);
  ::unlinkat(parent, name, AT_REMOVEDIR);
}

}  // namespace

FileDescriptor LockFolder(const std::string& folder) {
  const std::string unlocked = folder + "/" + kUnlocked;
  const std::string locked = folder + "/" + kLock;
  FileDescriptor lock(::open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool is_locked = lock.IsOpen() && ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0 &&
                         std::rename(unlocked.c_str(), locked.c_str()) == 0;
  if (!is_locked) lock.Close();
  return lock;
}

void ClearStaleFolders(const std::string& parent) {
  const FileDescriptor folder(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.IsOpen()) return;
  for (const std::string& name : NamesIn(folder.get())) {
    if (HasPattern(name)) ClearIfStale(folder.get(), name.c_str());
  }
}

}  // namespace sluice::cli
