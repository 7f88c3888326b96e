// Folders of servers that were killed go; everything else that has such a name stays.
#include "cli/serve/stale_folders.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

class StaleFolders : public testing::Test {
 protected:
  StaleFolders() {
    std::string name = testing::TempDir() + "/stale_folders_XXXXXX";
    parent_ = ::mkdtemp(name.data());
  }
  ~StaleFolders() override { fs::remove_all(parent_); }

  fs::path Make(const std::string& name, mode_t mode = 0700) const {
    const fs::path folder = parent_ / name;
    ::mkdir(folder.c_str(), mode);
    std::ofstream(folder / "engine") << "a socket";
    return folder;
  }
  // As a server leaves it that was killed.
  fs::path MakeStale(const std::string& name) const {
    fs::path folder = Make(name);
    LockFolder(folder).Close();
    return folder;
  }

  fs::path parent_;
};

TEST_F(StaleFolders, OneThatNobodyLocksIsRemoved) {
  const fs::path stale = MakeStale("sluice-abc123");
  ClearStaleFolders(parent_);
  EXPECT_FALSE(fs::exists(stale));
}

TEST_F(StaleFolders, OneThatIsLockedStays) {
  const fs::path folder = Make("sluice-abc123");
  const link::FileDescriptor lock = LockFolder(folder);
  ASSERT_TRUE(lock.IsOpen());
  EXPECT_FALSE(fs::exists(folder / "lock.new"));
  ClearStaleFolders(parent_);
  EXPECT_TRUE(fs::exists(folder / "engine"));
}

// It may be locked in a moment: its server has just begun.
TEST_F(StaleFolders, OneWithoutALockStays) {
  const fs::path folder = Make("sluice-abc123");
  ClearStaleFolders(parent_);
  EXPECT_TRUE(fs::exists(folder / "engine"));
  std::ofstream(folder / "lock.new") << "";
  ClearStaleFolders(parent_);
  EXPECT_TRUE(fs::exists(folder / "lock.new"));
}

TEST_F(StaleFolders, WhatIsNoFolderOfAServerStays) {
  const fs::path other_name = MakeStale("sluice-abc1234");
  const fs::path has_more = MakeStale("sluice-abc123");
  std::ofstream(has_more / "notes") << "mine";
  const fs::path is_open = MakeStale("sluice-abc124");
  fs::permissions(is_open, fs::perms::others_read, fs::perm_options::add);
  ClearStaleFolders(parent_);
  for (const fs::path& folder : {other_name, has_more, is_open}) {
    EXPECT_TRUE(fs::exists(folder / "engine")) << folder;
    EXPECT_TRUE(fs::exists(folder / "lock")) << folder;
  }
}

TEST_F(StaleFolders, LinksAreNotFollowed) {
  const fs::path elsewhere = MakeStale("elsewhere");
  fs::create_directory_symlink(elsewhere, parent_ / "sluice-abc123");
  const fs::path folder = Make("sluice-abc124");
  fs::create_symlink(elsewhere / "lock", folder / "lock");
  ClearStaleFolders(parent_);
  EXPECT_TRUE(fs::exists(elsewhere / "engine"));
  EXPECT_TRUE(fs::exists(folder / "engine"));
}

}  // namespace
}  // namespace sluice::cli
