// A .safetensors file of rows that come one after the other; how many there are is known at the
// end.
//
// The file appears under its name when it is whole; until then it is FILE.part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sluice::cli {

// columns: elements a row; 0 writes a list, with one element a row. All elements have four bytes.
struct RowsTensor {
  std::string name;
  std::string dtype;  // "F32", "I32"
  int64_t columns;
};

class SafetensorsWriter {
 public:
  using Metadata = std::vector<std::pair<std::string, std::string>>;

  // The first tensor's rows go to the file as they come; the others', which should be small, are
  // held until Close. Throws Error naming the path when it cannot be written.
  SafetensorsWriter(const std::string& path, std::vector<RowsTensor> tensors, Metadata metadata);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  // Whole rows of the tensor of that index.
  template <typename T>
  void Append(size_t tensor, std::span<const T> values) {
    static_assert(sizeof(T) == 4);
    AppendBytes(tensor, std::as_bytes(values));
  }
  void Close();

 private:
  void AppendBytes(size_t tensor, std::span<const std::byte> bytes);
  void Write(std::span<const std::byte> bytes);
  void WriteHeader();
  std::string HeaderText(std::span<const uint64_t> sizes) const;
  [[noreturn]] void Refuse() const;

  std::string path_;
  std::vector<RowsTensor> tensors_;
  Metadata metadata_;
  std::vector<std::vector<std::byte>> held_;  // of the tensors after the first
  std::vector<uint64_t> sizes_;               // in bytes
  size_t header_size_ = 0;
  std::ofstream file_;
  bool is_closed_ = false;
};

}  // namespace sluice::cli
