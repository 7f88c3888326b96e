#include "cli/files/npy_file.h"

#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>

#include "cli/files/file.h"
#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

constexpr const char* kWhatItIs = "a .npy file of logits, as numpy.save writes it";

// The header: a dictionary of Python with the three keys that numpy writes, in any order.
struct Header {
  std::string descr;
  bool is_fortran = false;
  std::vector<uint64_t> shape;
};

class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  // Nothing for what is no such dictionary.
  std::optional<Header> Parse() {
    Header header;
    bool has_descr = false;
    bool has_order = false;
    bool has_shape = false;
    if (!Take('{')) return std::nullopt;
    while (!Take('}')) {
      std::string key;
      if (!TakeString(key) || !Take(':')) return std::nullopt;
      bool is_read = false;
      if (key == "descr" && !has_descr) {
        is_read = has_descr = TakeDescr(header.descr);
      } else if (key == "fortran_order" && !has_order) {
        is_read = has_order = TakeBool(header.is_fortran);
      } else if (key == "shape" && !has_shape) {
        is_read = has_shape = TakeShape(header.shape);
      }
      if (!is_read) return std::nullopt;
      if (!Take(',')) {
        if (!Take('}')) return std::nullopt;
        break;
      }
    }
    SkipSpace();
    const bool is_whole = at_ == text_.size() && has_descr && has_order && has_shape;
    return is_whole ? std::optional(header) : std::nullopt;
  }

 private:
  void SkipSpace() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool Take(char c) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  bool TakeString(std::string& value) {
    SkipSpace();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return false;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return false;
    value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return true;
  }
  bool TakeBool(bool& value) {
    value = TakeWord("True");
    return value || TakeWord("False");
  }
  // A list is a structured type; what it has in it is shown and refused.
  bool TakeDescr(std::string& value) {
    SkipSpace();
    if (at_ == text_.size() || text_[at_] != '[') return TakeString(value);
    int depth = 0;
    const size_t begin = at_;
    for (; at_ < text_.size(); ++at_) {
      depth += text_[at_] == '[' ? 1 : text_[at_] == ']' ? -1 : 0;
      if (depth == 0) break;
    }
    if (at_ == text_.size()) return false;
    ++at_;
    value = text_.substr(begin, at_ - begin);
    return true;
  }
  bool TakeShape(std::vector<uint64_t>& shape) {
    if (!Take('(')) return false;
    while (!Take(')')) {
      SkipSpace();
      const char* begin = text_.data() + at_;
      const auto [end, error] =
          std::from_chars(begin, text_.data() + text_.size(), shape.emplace_back());
      if (error != std::errc()) return false;
      at_ += static_cast<size_t>(end - begin);
      TakeWord("L");  // of Python 2
      if (!Take(',')) return Take(')');
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// What a header may hold that a terminal should not see.
std::string Printable(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 60)) shown += c >= ' ' && c <= '~' ? c : '?';
  return "'" + shown + (text.size() > 60 ? "'..." : "'");
}

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + Number(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

NpyFile::NpyFile(const std::string& path) : path_(path) {
  auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kInvalidValue, "FILE", Quoted(path) + " (" + why + ")", kWhatItIs);
  };
  CheckIsFile(path);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) refuse("no regular file");
  file_size_ = std::filesystem::file_size(path, error);
  file_.open(path, std::ios::binary);
  if (error || !file_) refuse("cannot be opened");
  ReadHeader();
}

void NpyFile::Refuse(const std::string& what, const std::string& value,
                     const std::string& allowed) const {
  throw Error(ErrorCode::kInvalidValue, path_ + ": " + what, value, allowed);
}

void NpyFile::ReadHeader() {
  unsigned char start[12] = {};
  file_.read(reinterpret_cast<char*>(start), sizeof start);
  const auto has = static_cast<size_t>(file_.gcount());
  if (has < 8 || std::string_view(reinterpret_cast<char*>(start), 6) != "\x93NUMPY") {
    Refuse("first bytes", has < 8 ? "a file of " + Number(file_size_) + " bytes" : "another format",
           kWhatItIs);
  }
  const unsigned version = start[6];
  if (version < 1 || version > 3 || start[7] != 0) {
    Refuse("version", Number(version) + "." + Number(unsigned{start[7]}), "1.0, 2.0 or 3.0");
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= uint64_t{start[8 + i]} << (8 * i);
  data_offset_ = 8 + length_bytes + length;
  constexpr uint64_t kLongest = 1 << 16;  // numpy's own are below 200 bytes
  if (length > kLongest || data_offset_ > file_size_) {
    Refuse("length of the header", Number(length), "within the file, at most 65536");
  }
  std::string text(length, '\0');
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(8 + length_bytes));
  if (!file_.read(text.data(), static_cast<std::streamsize>(length))) {
    Refuse("header", "cannot be read", kWhatItIs);
  }
  const std::optional<Header> header = HeaderParser(text).Parse();
  if (!header.has_value()) {
    Refuse("header", Printable(text), "a dictionary with descr, fortran_order and shape");
  }

  const std::string& descr = header->descr;
  const char* conversion = "float32, float16 or bfloat16; convert with x.astype('<f4')";
  if (descr == "<f4") {
    dtype_ = DType::kF32;
  } else if (descr == "<f2") {
    dtype_ = DType::kF16;
  } else if (descr == "<V2" || descr == "bfloat16") {
    dtype_ = DType::kBf16;
  } else if (descr == "|V2") {
    Refuse("dtype", "'|V2', two bytes of no type", "bfloat16 as '<V2'; or x.astype('<f4')");
  } else {
    const char* name = descr == "<f8"           ? " (float64)"
                       : descr.starts_with(">") ? " (big-endian)"
                                                : "";
    Refuse("dtype", Printable(descr) + name, conversion);
  }

  const std::vector<uint64_t>& shape = header->shape;
  if (shape.size() != 1 && shape.size() != 2) {
    Refuse("shape", ShapeText(shape), "(vocabulary,) or (rows, vocabulary)");
  }
  has_rows_ = shape.size() == 2;
  const uint64_t rows = has_rows_ ? shape[0] : 1;
  const uint64_t vocab = shape.back();
  constexpr uint64_t kMostRows = std::numeric_limits<int32_t>::max();
  if (rows < 1 || rows > kMostRows || vocab < 1 || vocab > uint64_t{kMaxVocab}) {
    Refuse("shape", ShapeText(shape),
           "1 to 2147483647 rows of 1 to " + Number(kMaxVocab) + " logits");
  }
  if (header->is_fortran && rows > 1 && vocab > 1) {
    Refuse("fortran_order", "True", "rows one after the other: numpy.ascontiguousarray(x)");
  }
  rows_ = static_cast<int64_t>(rows);
  vocab_ = static_cast<int64_t>(vocab);
  const uint64_t needed = rows * vocab * SizeOf(dtype_);  // below 2^31 * 2^23 * 4
  if (file_size_ - data_offset_ < needed) {
    Refuse("data", Number(file_size_ - data_offset_) + " bytes",
           "the " + Number(needed) + " bytes of shape " + ShapeText(shape));
  }
}

std::string NpyFile::Shape() const {
  std::vector<uint64_t> shape;
  if (has_rows_) shape.push_back(static_cast<uint64_t>(rows_));
  shape.push_back(static_cast<uint64_t>(vocab_));
  return ShapeText(shape);
}

std::vector<std::byte> NpyFile::ReadRow(int64_t row) {
  if (row < 0 || row >= rows_) {
    throw Error(ErrorCode::kInvalidValue, "row", Number(row), "[0, " + Number(rows_ - 1) + "]");
  }
  const uint64_t row_bytes = static_cast<uint64_t>(vocab_) * SizeOf(dtype_);
  std::vector<std::byte> bytes(row_bytes);
  file_.clear();
  file_.seekg(static_cast<std::streamoff>(data_offset_ + static_cast<uint64_t>(row) * row_bytes));
  if (!file_.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(row_bytes))) {
    Refuse("data", "cannot be read", kWhatItIs);
  }
  return bytes;
}

}  // namespace sluice::cli
