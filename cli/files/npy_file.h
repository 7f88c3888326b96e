// Logits in a .npy file of numpy: one row (1-D) or several (2-D, C order), little-endian float32 or
// float16, or bfloat16 as ml_dtypes writes it ('<V2', 'bfloat16'). Format versions 1 to 3.
//
// Only the requested row is read. Everything that does not fit throws Error, with its parameter
// named "FILE: what".
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "sluice/tensor.hpp"

namespace sluice::cli {

class NpyFile {
 public:
  explicit NpyFile(const std::string& path);

  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }
  bool has_rows() const { return has_rows_; }  // 2-D
  int64_t rows() const { return rows_; }
  int64_t vocab() const { return vocab_; }
  std::string Shape() const;  // as numpy writes it

  // Bytes of one row, at the alignment of new.
  std::vector<std::byte> ReadRow(int64_t row);

 private:
  void ReadHeader();
  [[noreturn]] void Refuse(const std::string& what, const std::string& value,
                           const std::string& allowed) const;

  std::string path_;
  std::ifstream file_;
  uint64_t file_size_ = 0;
  uint64_t data_offset_ = 0;
  DType dtype_ = DType::kF32;
  bool has_rows_ = false;
  int64_t rows_ = 1;
  int64_t vocab_ = 0;
};

}  // namespace sluice::cli
