#include "cli/files/file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

#include "cli/text.h"
#include "cli/usage_error.h"

namespace sluice::cli {

void CheckIsFile(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    throw UsageError("no such file: " + path);
  }
  if (status.type() == std::filesystem::file_type::directory) {
    throw UsageError("not a file but a folder: " + path);
  }
  if (error) throw UsageError("cannot read " + path + ": " + error.message());
}

void CheckIsRegularFile(std::string_view parameter, const std::string& path) {
  CheckIsFile(path);
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return;
  throw Error(ErrorCode::kInvalidValue, std::string(parameter), Quoted(path) + " (no regular file)",
              "a regular file, to be read more than once");
}

void ThrowUnwritable(const std::string& path) {
  throw UsageError("cannot write " + path + ": " + std::strerror(errno));
}

void CheckWritable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) ThrowUnwritable(path);
}

void RethrowOf(const std::string& path, const Error& error) {
  const std::string& what = error.parameter();
  if (what.ends_with("json")) {  // "malformed (why)", of the whole text or of a line
    throw UsageError(path + ": " + what.substr(0, what.size() - 4) + error.value() + "; expected " +
                     error.allowed());
  }
  throw Error(error.code(), path + ": " + what, error.value(), error.allowed());
}

std::string ReadTextFile(std::string_view parameter, const std::string& path) {
  constexpr size_t kLargest = size_t{64} << 20;
  auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidValue, std::string(parameter), Quoted(path) + " (" + why + ")",
                "a file of at most 64 MiB that can be read");
  };
  const bool is_input = path == "-";
  if (!is_input) CheckIsFile(path);
  const auto close = [is_input](std::FILE* file) { return is_input ? 0 : std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(
      is_input ? stdin : std::fopen(path.c_str(), "rb"), close);
  if (file == nullptr) refuse(std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> chunk;
  while (const size_t size = std::fread(chunk.data(), 1, chunk.size(), file.get())) {
    text.append(chunk.data(), size);
    if (text.size() > kLargest) refuse("larger");
  }
  if (std::ferror(file.get()) != 0) refuse("cannot be read");
  return text;
}

}  // namespace sluice::cli
