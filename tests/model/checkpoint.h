// Files of models in memory: safetensors taken apart and put together again, whole or spoilt.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::test {

using FileBytes = std::vector<std::byte>;

inline FileBytes AsBytes(std::string_view text) {
  const std::byte* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

inline std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline FileBytes ReadBytes(const std::string& path) { return AsBytes(ReadText(path)); }

inline void WriteBytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file) << path;
}

inline void WriteText(const std::string& path, std::string_view text) {
  WriteBytes(path, AsBytes(text));
}

struct StoredTensor {
  std::string name;
  std::string dtype;  // as safetensors spells it: "F32"
  std::vector<int64_t> shape;
  FileBytes data;

  template <typename T>
  std::vector<T> Values() const {
    std::vector<T> values(data.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data.data(), values.size() * sizeof(T));
    return values;
  }
  template <typename T>
  void SetValues(const std::vector<T>& values) {
    data.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(data.data(), values.data(), data.size());
  }
};

// A file that is known to be good.
inline std::vector<StoredTensor> ParseSafetensors(const FileBytes& file) {
  uint64_t header_size = 0;
  std::memcpy(&header_size, file.data(), sizeof header_size);
  const std::byte* data = file.data() + sizeof header_size + header_size;
  simdjson::dom::parser parser;
  const simdjson::dom::object header =
      parser.parse(reinterpret_cast<const char*>(file.data()) + sizeof header_size, header_size);
  std::vector<StoredTensor> tensors;
  for (const auto [name, entry] : header) {
    if (name == "__metadata__") continue;
    StoredTensor tensor{
        std::string(name), std::string(entry["dtype"].get_string().value()), {}, {}};
    for (const auto size : entry["shape"].get_array()) tensor.shape.push_back(size.get_int64());
    const int64_t begin = entry["data_offsets"].at(0).get_int64();
    const int64_t end = entry["data_offsets"].at(1).get_int64();
    tensor.data.assign(data + begin, data + end);
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// The entry of a tensor in a header.
inline std::string HeaderEntry(const std::string& name, const std::string& dtype,
                               const std::string& shape, const std::string& begin,
                               const std::string& end) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + begin + "," + end + "]}";
}

// Any header before any data, with the length that belongs before it or with another.
inline FileBytes JoinSafetensors(std::string_view header, const FileBytes& data,
                                 uint64_t claimed_size) {
  FileBytes file(sizeof claimed_size);
  std::memcpy(file.data(), &claimed_size, sizeof claimed_size);
  const FileBytes text = AsBytes(header);
  file.insert(file.end(), text.begin(), text.end());
  file.insert(file.end(), data.begin(), data.end());
  return file;
}
inline FileBytes JoinSafetensors(std::string_view header, const FileBytes& data) {
  return JoinSafetensors(header, data, header.size());
}

inline FileBytes ToSafetensors(const std::vector<StoredTensor>& tensors) {
  std::string header = "{";
  FileBytes data;
  for (const StoredTensor& tensor : tensors) {
    std::string shape;
    for (const int64_t size : tensor.shape) {
      shape.append(shape.empty() ? "" : ",").append(std::to_string(size));
    }
    if (header.size() > 1) header += ",";
    header += HeaderEntry(tensor.name, tensor.dtype, shape, std::to_string(data.size()),
                          std::to_string(data.size() + tensor.data.size()));
    data.insert(data.end(), tensor.data.begin(), tensor.data.end());
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return JoinSafetensors(header, data);
}

// The text with `to` for every `from`.
inline std::string Replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at = 0; (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size())) {
    result.append(text.substr(0, at)).append(to);
  }
  return result.append(text);
}

// How the line of a key of a file's one object begins: the configurations of the fixtures are
// indented by one.
inline std::string KeyLine(std::string_view key) {
  return std::string("\n \"").append(key).append("\": ");
}

// The JSON text with that value of a key of its object, which need not have had it.
inline std::string WithValue(std::string_view json, std::string_view key, std::string_view value) {
  const std::string line = KeyLine(key).append(value);
  const size_t at = json.find(KeyLine(key));
  if (at == json.npos) {
    return std::string("{").append(line).append(",").append(json.substr(1));
  }
  // Up to the next line that is as little indented.
  size_t end = json.find('\n', at + 1);
  while (json.compare(end, 3, "\n \"") != 0 && json.compare(end, 2, "\n}") != 0) {
    end = json.find('\n', end + 1);
  }
  const bool is_last = json[end + 1] == '}';
  return std::string(json.substr(0, at))
      .append(line)
      .append(is_last ? "" : ",")
      .append(json.substr(end));
}

// The JSON text without that key of its object.
inline std::string WithoutKey(std::string_view json, std::string_view key) {
  EXPECT_NE(json.find(KeyLine(key)), json.npos) << key;
  return Replaced(json, KeyLine(key), KeyLine("no_such_key"));
}

}  // namespace sluice::test
