#include "cli/files/safetensors_writer.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "cli/files/file.h"
#include "cli/text.h"
#include "json/writer.h"

namespace sluice::cli {
namespace {

std::string PartOf(const std::string& path) { return path + ".part"; }

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<RowsTensor> tensors,
                                     Metadata metadata)
    : path_(path),
      tensors_(std::move(tensors)),
      metadata_(std::move(metadata)),
      held_(tensors_.size()),
      sizes_(tensors_.size(), 0),
      file_(PartOf(path), std::ios::binary) {
  // As long as the longest numbers make it, so that it can be written again. Data begins at a
  // multiple of eight bytes, as the format requires.
  constexpr uint64_t kLargest = uint64_t{1} << 60;
  const std::vector<uint64_t> largest(tensors_.size(), kLargest);
  header_size_ = (HeaderText(largest).size() + 7) / 8 * 8;
  WriteHeader();
}

SafetensorsWriter::~SafetensorsWriter() {
  if (is_closed_) return;
  file_.close();
  std::error_code ignored;
  std::filesystem::remove(PartOf(path_), ignored);
}

std::string SafetensorsWriter::HeaderText(std::span<const uint64_t> sizes) const {
  std::ostringstream text;
  JsonWriter json(text);
  json.Object([&] {
    json.Key("__metadata__").Object([&] {
      for (const auto& [key, value] : metadata_) json.Key(key).Value(value);
    });
    uint64_t begin = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const RowsTensor& tensor = tensors_[i];
      const auto columns = static_cast<uint64_t>(std::max<int64_t>(tensor.columns, 1));
      json.Key(tensor.name).Object([&] {
        json.Key("dtype").Value(tensor.dtype);
        json.Key("shape").Array([&] {
          json.Value(sizes[i] / 4 / columns);
          if (tensor.columns > 0) json.Value(columns);
        });
        json.Key("data_offsets").Array([&] {
          json.Value(begin);
          json.Value(begin + sizes[i]);
        });
      });
      begin += sizes[i];
    }
  });
  return text.str();
}

void SafetensorsWriter::WriteHeader() {
  std::string text = HeaderText(sizes_);
  text.resize(header_size_, ' ');
  const uint64_t size = header_size_;  // little endian, as the machines we run on
  Write(std::as_bytes(std::span(&size, 1)));
  Write(std::as_bytes(std::span(text)));
}

void SafetensorsWriter::Refuse() const { ThrowUnwritable(path_); }

void SafetensorsWriter::Write(std::span<const std::byte> bytes) {
  file_.write(reinterpret_cast<const char*>(bytes.data()), std::ssize(bytes));
  if (!file_) Refuse();
}

void SafetensorsWriter::AppendBytes(size_t tensor, std::span<const std::byte> bytes) {
  if (tensor == 0) {
    Write(bytes);
  } else {
    held_[tensor].insert(held_[tensor].end(), bytes.begin(), bytes.end());
  }
  sizes_[tensor] += bytes.size();
}

void SafetensorsWriter::Close() {
  for (size_t i = 1; i < held_.size(); ++i) Write(held_[i]);
  file_.seekp(0);
  WriteHeader();
  file_.close();
  if (!file_) Refuse();
  std::error_code error;
  std::filesystem::rename(PartOf(path_), path_, error);
  if (error) {
    errno = error.value();
    Refuse();
  }
  is_closed_ = true;
}

}  // namespace sluice::cli
