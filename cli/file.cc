#include "cli/file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {

std::string WhyUnreadable(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return "no such file";
  if (status.type() == std::filesystem::file_type::directory) return "a directory";
  return error ? error.message() : "";
}

std::string ReadTextFile(std::string_view parameter, const std::string& path) {
  constexpr size_t kLargest = size_t{64} << 20;
  auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidValue, std::string(parameter), Quoted(path) + " (" + why + ")",
                "a file of at most 64 MiB that can be read");
  };
  const bool is_input = path == "-";
  const std::string why = is_input ? "" : WhyUnreadable(path);
  if (!why.empty()) refuse(why);
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
