// A regular file in memory, read-only, without reading it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

class MappedFile {
 public:
  // Throws Error: parameter = "path" (why) is not allowed: `what` that can be read. An empty file
  // is no error; its bytes are empty.
  MappedFile(const std::string& path, std::string_view parameter, std::string_view what);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace sluice
