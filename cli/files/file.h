// Whole files, and errors that say what is wrong with one.
#pragma once

#include <string>
#include <string_view>

#include "sluice/error.hpp"

namespace sluice::cli {

// Throws UsageError for a path without a file: "no such file: X". What else may be wrong shows when
// the file is read.
void CheckIsFile(const std::string& path);

// Throws UsageError as CheckIsFile does, and Error naming `parameter` for what is no regular file:
// a read of it may wait.
void CheckIsRegularFile(std::string_view parameter, const std::string& path);

// Throws UsageError for a path that cannot be opened to write: "cannot write X: Is a directory".
// The reason is errno's.
[[noreturn]] void ThrowUnwritable(const std::string& path);

// Throws as ThrowUnwritable does where it is so. A file that exists keeps its bytes: a run that
// fails later leaves it as it was.
void CheckWritable(const std::string& path);

// Throws what a parser said of the text of this file, with the file's name.
[[noreturn]] void RethrowOf(const std::string& path, const Error& error);

// Standard input for "-". Throws UsageError as CheckIsFile does, and Error naming `parameter` and
// the path when it cannot be read or has more than 64 MiB.
std::string ReadTextFile(std::string_view parameter, const std::string& path);

}  // namespace sluice::cli
