#include "cli/files/npy_writer.h"

#include <algorithm>

#include "cli/files/file.h"
#include "cli/text.h"

namespace sluice::cli {

NpyWriter::NpyWriter(const std::string& path, std::string_view descr, int64_t columns)
    : path_(path), descr_(descr), columns_(columns), file_(path, std::ios::binary) {
  WriteHeader();
}

void NpyWriter::Write(std::span<const std::byte> bytes) {
  file_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  if (!file_) Refuse();
}

void NpyWriter::Refuse() const { ThrowUnwritable(path_); }

// Version 1 of the format. It has one size for every number of rows, so that it can be written
// again.
void NpyWriter::WriteHeader() {
  constexpr size_t kSize = 128;
  const int64_t rows = elements_ / std::max<int64_t>(columns_, 1);
  std::string text = "{'descr': '" + descr_ + "', 'fortran_order': False, 'shape': (" +
                     Number(rows) + (columns_ > 0 ? ", " + Number(columns_) + ")" : ",)") + ", }";
  constexpr std::string_view kMagic("\x93NUMPY\x01\x00\x76\x00", 10);  // 0x76 bytes follow
  static_assert(kMagic.size() + 0x76 == kSize);
  text.resize(kSize - kMagic.size() - 1, ' ');
  text = std::string(kMagic) + text + "\n";
  Write(std::as_bytes(std::span(text)));
}

void NpyWriter::Close() {
  file_.seekp(0);
  WriteHeader();
  file_.close();
  if (!file_) Refuse();
}

}  // namespace sluice::cli
