// Where the grammar engine's libraries are.
#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "grammar/library_impl.h"
#include "sluice/error.hpp"
#include "sluice/grammar.hpp"

namespace sluice {
namespace grammar {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTvmFfi = "libtvm_ffi.so";
constexpr const char* kXgrammar = "libxgrammar_bindings.so";

struct Files {
  fs::path tvm_ffi;
  fs::path xgrammar;
};

bool Exist(const Files& files) {
  std::error_code ignored;
  return fs::is_regular_file(files.tvm_ffi, ignored) &&
         fs::is_regular_file(files.xgrammar, ignored);
}

// The site-packages folders of a virtual environment, the newest Python first.
std::vector<fs::path> SitePackages(const fs::path& root) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator i(root / "lib", error), end; !error && i != end; i.increment(error)) {
    if (i->path().filename().string().starts_with("python")) {
      found.push_back(i->path() / "site-packages");
    }
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

// Both together in the folder, in the packages of a site-packages folder, or in those of a virtual
// environment.
bool FindIn(const fs::path& folder, Files& files) {
  std::vector<fs::path> sites = SitePackages(folder);
  sites.insert(sites.begin(), folder);
  files = {folder / kTvmFfi, folder / kXgrammar};
  if (Exist(files)) return true;
  return std::any_of(sites.begin(), sites.end(), [&files](const fs::path& site) {
    files = {site / "tvm_ffi" / "lib" / kTvmFfi, site / "xgrammar" / kXgrammar};
    return Exist(files);
  });
}

// Folders that are searched when none is given.
std::vector<fs::path> UsualFolders() {
  std::vector<fs::path> folders;
  const auto add = [&folders](const fs::path& file) {
    std::error_code error;
    const fs::path folder = fs::weakly_canonical(file, error).parent_path();
    if (error || folder.empty()) return;
    // Next to the file; lib/ next to its bin/; the environment, or the site-packages folder, that
    // it is in.
    for (const fs::path& place : {folder, folder.parent_path() / "lib",
                                  folder.parent_path() / "lib" / "sluice", folder.parent_path()}) {
      folders.push_back(place);
    }
  };
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&ThrowMissing), &info) != 0 &&
      info.dli_fname != nullptr) {
    add(info.dli_fname);
  }
  add("/proc/self/exe");
  return folders;
}

std::string ListOf(std::vector<fs::path> folders) {
  std::sort(folders.begin(), folders.end());
  folders.erase(std::unique(folders.begin(), folders.end()), folders.end());
  std::string text;
  for (const fs::path& folder : folders) {
    text.append(text.empty() ? "" : ", ").append(folder.string());
  }
  return text;
}

std::shared_ptr<const LibraryImpl> LoadFiles(const Files& files) {
  return std::make_shared<const LibraryImpl>(files.tvm_ffi.string(), files.xgrammar.string());
}

}  // namespace
}  // namespace grammar

GrammarLibrary GrammarLibrary::Load(const std::string& folder) {
  grammar::Files files;
  if (!folder.empty()) {
    if (!grammar::FindIn(folder, files)) {
      grammar::ThrowMissing(folder, "neither the folder nor packages below it have both");
    }
    return GrammarLibrary(grammar::LoadFiles(files));
  }
  const std::vector<grammar::fs::path> folders = grammar::UsualFolders();
  for (const auto& folder_of_program : folders) {
    if (grammar::FindIn(folder_of_program, files)) return GrammarLibrary(grammar::LoadFiles(files));
  }
  try {
    return GrammarLibrary(grammar::LoadFiles({grammar::kTvmFfi, grammar::kXgrammar}));
  } catch (const Error& error) {
    if (!error.value().empty()) throw;
    throw Error(error.code(), error.parameter(), "",
                error.allowed() + "; not found in " + grammar::ListOf(folders));
  }
}

const std::string& GrammarLibrary::path() const { return impl_->path(); }

}  // namespace sluice
