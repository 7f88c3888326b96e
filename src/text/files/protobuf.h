// Protocol Buffers' wire format, as much of it as a file of SentencePiece has.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

#include "support/check.h"

namespace sluice::text {

// One field: a number, or bytes.
struct ProtobufField {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes = {};

  float Float() const {
    const auto bits = static_cast<uint32_t>(value);
    float number32;
    std::memcpy(&number32, &bits, sizeof number32);
    return number32;
  }
};

class ProtobufReader {
 public:
  ProtobufReader(std::string_view parameter, std::string_view message)
      : parameter_(parameter), rest_(message) {}

  // False at the end. Throws Error for what is malformed.
  bool Next(ProtobufField* field) {
    if (rest_.empty()) return false;
    const uint64_t key = Varint();
    *field = {.number = static_cast<uint32_t>(key >> 3)};
    switch (key & 7) {
      case 0:
        field->value = Varint();
        return true;
      case 1:
        field->value = Fixed(8);
        return true;
      case 2:
        field->bytes = Bytes(Varint());
        return true;
      case 5:
        field->value = Fixed(4);
        return true;
      default:
        Refuse();
    }
  }

 private:
  [[noreturn]] void Refuse() const {
    ThrowInvalid(parameter_, "malformed", "a model of SentencePiece");
  }
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) Refuse();
      const auto byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    Refuse();
  }
  std::string_view Bytes(uint64_t size) {
    if (size > rest_.size()) Refuse();
    const std::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return bytes;
  }
  uint64_t Fixed(size_t size) {
    uint64_t value = 0;
    const std::string_view bytes = Bytes(size);
    for (size_t i = size; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
    return value;
  }

  std::string_view parameter_;
  std::string_view rest_;
};

}  // namespace sluice::text
