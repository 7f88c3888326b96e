#include "engine/files/text_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "support/check.h"

namespace sluice::engine {

std::optional<std::string> ReadTextFile(const std::string& path) {
  constexpr uintmax_t kLargest = uintmax_t{64} << 20;
  const auto refuse = [&](const std::string& why) {
    ThrowInvalid(path, why, "a file of at most 64 MiB that can be read");
  };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return std::nullopt;
  if (error) refuse(error.message());
  if (status.type() != std::filesystem::file_type::regular) refuse("no regular file");
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) refuse(error.message());
  if (size > kLargest) refuse(ToText(static_cast<int64_t>(size)) + " bytes");
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size))) refuse(std::strerror(errno));
  return text;
}

std::string TokenizerPath(const std::string& directory) {
  const std::string json = directory + "/tokenizer.json";
  std::error_code error;
  const auto status = std::filesystem::status(json, error);
  return status.type() == std::filesystem::file_type::not_found ? directory + "/tokenizer.model"
                                                                : json;
}

}  // namespace sluice::engine
