// Rows of numbers into a .npy file of numpy, one after the other; how many there are is known at
// the end.
#pragma once

#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

namespace sluice::cli {

class NpyWriter {
 public:
  // descr: numpy's name of the type, "<f4" or "<i4". columns: elements a row; 0 writes a list, with
  // one element a row. Throws Error naming the path when it cannot be written.
  NpyWriter(const std::string& path, std::string_view descr, int64_t columns);

  // Whole rows, as the descr says.
  template <typename T>
  void Append(std::span<const T> values) {
    static_assert(sizeof(T) == 4);
    Write(std::as_bytes(values));
    elements_ += std::ssize(values);
  }
  // Writes the shape. A file without it is no .npy file.
  void Close();

 private:
  void Write(std::span<const std::byte> bytes);
  void WriteHeader();
  [[noreturn]] void Refuse() const;

  std::string path_;
  std::string descr_;
  int64_t columns_;
  int64_t elements_ = 0;
  std::ofstream file_;
};

}  // namespace sluice::cli
