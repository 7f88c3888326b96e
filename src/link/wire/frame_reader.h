// Reads MessagePack as the caller expects it: every call names the next element, and the first one
// that is another, or outside its range, makes all that follow fail.
//
// Not msgpack::parse: that pushes elements into a visitor, which makes a state machine of what is a
// list of fields here, and takes memory for its stack at every frame. As the caller descends, depth
// needs no limit.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "support/number.h"

namespace sluice::link {

class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes)
      : begin_(bytes.data()), at_(begin_), end_(begin_ + bytes.size()) {}

  bool failed() const { return failure_ != nullptr; }
  // Empty, or what was wrong first, and where.
  std::string Failure() const {
    if (!failed()) return {};
    return std::string(failure_).append(" at byte ").append(Number(failed_at_));
  }
  size_t rest() const { return static_cast<size_t>(end_ - at_); }
  void Fail(const char* why) {
    if (failed()) return;
    failure_ = why;
    failed_at_ = at_ - begin_;
    at_ = end_;
  }

  uint8_t Byte() {
    if (at_ == end_) return Fail("too few bytes"), uint8_t{0};
    return static_cast<uint8_t>(*at_++);
  }

  template <std::integral T>
  T Integer(T low = std::numeric_limits<T>::min(), T high = std::numeric_limits<T>::max()) {
    const uint8_t code = Byte();
    if (code <= 0x7f) return InRange(code, low, high);
    switch (code) {
      case 0xcc:
        return InRange(Load<uint8_t>(), low, high);
      case 0xcd:
        return InRange(Load<uint16_t>(), low, high);
      case 0xce:
        return InRange(Load<uint32_t>(), low, high);
      case 0xcf:
        return InRange(Load<uint64_t>(), low, high);
      case 0xd0:
        return InRange(static_cast<int8_t>(Load<uint8_t>()), low, high);
      case 0xd1:
        return InRange(static_cast<int16_t>(Load<uint16_t>()), low, high);
      case 0xd2:
        return InRange(static_cast<int32_t>(Load<uint32_t>()), low, high);
      case 0xd3:
        return InRange(static_cast<int64_t>(Load<uint64_t>()), low, high);
      default:
        if (code >= 0xe0) return InRange(static_cast<int8_t>(code), low, high);
        return Fail("no whole number"), T{};
    }
  }

  template <typename T>
  T Enum(T last) {
    return static_cast<T>(Integer<uint8_t>(0, static_cast<uint8_t>(last)));
  }

  // Any number but NaN.
  float Float() {
    if (Byte() != 0xca) return Fail("no single-precision number"), 0.0f;
    const float value = std::bit_cast<float>(Load<uint32_t>());
    if (std::isnan(value)) return Fail("NaN"), 0.0f;
    return value;
  }

  bool Bool() {
    const uint8_t code = Byte();
    if (code != 0xc2 && code != 0xc3) Fail("neither true nor false");
    return code == 0xc3;
  }

  // Takes a nil, if there is one.
  bool TakeNil() {
    if (at_ == end_ || static_cast<uint8_t>(*at_) != 0xc0) return false;
    ++at_;
    return true;
  }

  // The number of elements, each of which has at least `least_bytes`.
  size_t Array(size_t least_bytes = 1) {
    const uint8_t code = Byte();
    size_t size = 0;
    if ((code & 0xf0) == 0x90) {
      size = code & 0x0f;
    } else if (code == 0xdc) {
      size = Load<uint16_t>();
    } else if (code == 0xdd) {
      size = Load<uint32_t>();
    } else {
      Fail("no array");
    }
    if (size > rest() / least_bytes) return Fail("an array that is longer than the frame"), 0;
    return size;
  }
  void ArrayOf(size_t size) {
    if (Array() != size) Fail("an array of another size");
  }

  std::string_view String() {
    const uint8_t code = Byte();
    size_t size = 0;
    if ((code & 0xe0) == 0xa0) {
      size = code & 0x1f;
    } else if (code == 0xd9) {
      size = Load<uint8_t>();
    } else if (code == 0xda) {
      size = Load<uint16_t>();
    } else if (code == 0xdb) {
      size = Load<uint32_t>();
    } else {
      Fail("no string");
    }
    return Take(size);
  }

  // The rest is of the formats of others, which leave more open than frames do.

  // A number of either precision, or a whole one; any but NaN.
  double Real() {
    if (rest() == 0) return Fail("too few bytes"), 0.0;
    const auto code = static_cast<uint8_t>(*at_);
    if (code == 0xca) return Float();
    if (code != 0xcb) return static_cast<double>(Integer<int64_t>());
    ++at_;
    const auto value = std::bit_cast<double>(Load<uint64_t>());
    if (std::isnan(value)) return Fail("NaN"), 0.0;
    return value;
  }

  // The number of entries, each of which is a key and a value.
  size_t Map() {
    const uint8_t code = Byte();
    size_t size = 0;
    if ((code & 0xf0) == 0x80) {
      size = code & 0x0f;
    } else if (code == 0xde) {
      size = Load<uint16_t>();
    } else if (code == 0xdf) {
      size = Load<uint32_t>();
    } else {
      Fail("no map");
    }
    if (size > rest() / 2) return Fail("a map that is longer than the frame"), 0;
    return size;
  }

  bool IsArray() const {
    if (rest() == 0) return false;
    const auto code = static_cast<uint8_t>(*at_);
    return (code & 0xf0) == 0x90 || code == 0xdc || code == 0xdd;
  }
  bool IsInteger() const {
    if (rest() == 0) return false;
    const auto code = static_cast<uint8_t>(*at_);
    return code <= 0x7f || code >= 0xe0 || (code >= 0xcc && code <= 0xd3);
  }

  // The bytes of an extension of that type.
  std::string_view Extension(int8_t type) {
    const uint8_t code = Byte();
    size_t size = 0;
    if (code >= 0xd4 && code <= 0xd8) {
      size = size_t{1} << (code - 0xd4);
    } else if (code == 0xc7) {
      size = Load<uint8_t>();
    } else if (code == 0xc8) {
      size = Load<uint16_t>();
    } else if (code == 0xc9) {
      size = Load<uint32_t>();
    } else {
      Fail("no extension");
    }
    if (static_cast<int8_t>(Byte()) != type) Fail("an extension of another type");
    return Take(size);
  }

  // One element with all that is in it, whatever it is.
  void Skip() {
    for (uint64_t left = 1; left > 0 && !failed(); --left) {
      left += SkipHead();
      // Each of them has a byte.
      if (left - 1 > rest()) Fail("an element that is longer than the frame");
    }
  }

  void End() {
    if (rest() != 0) Fail("bytes after the frame");
  }

 private:
  template <typename T>
  T Load() {  // the byte of the highest value first
    if (rest() < sizeof(T)) return Fail("too few bytes"), T{0};
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(T); ++i) value = value << 8 | static_cast<uint8_t>(at_[i]);
    at_ += sizeof(T);
    return static_cast<T>(value);
  }

  std::string_view Take(size_t size) {
    if (size > rest()) return Fail("bytes that are longer than the frame"), std::string_view();
    const std::string_view bytes(at_, size);
    at_ += size;
    return bytes;
  }

  // Goes past an element, but for the elements in it, of which it gives the number.
  uint64_t SkipHead() {
    const uint8_t code = Byte();
    if (code <= 0x7f || code >= 0xe0) return 0;
    if (code <= 0x8f) return 2 * uint64_t{code & 0x0fU};
    if (code <= 0x9f) return code & 0x0fU;
    if (code <= 0xbf) return Take(code & 0x1fU), 0;
    if (code <= 0xc3) {
      if (code == 0xc1) Fail("a byte that begins nothing");
      return 0;
    }
    if (code <= 0xc6) return Take(LoadSize(code - 0xc4)), 0;
    if (code <= 0xc9) return Take(LoadSize(code - 0xc7) + 1), 0;
    if (code <= 0xcb) return Take(code == 0xca ? 4 : 8), 0;
    if (code <= 0xd3) return Take(size_t{1} << ((code - 0xcc) & 3)), 0;
    if (code <= 0xd8) return Take((size_t{1} << (code - 0xd4)) + 1), 0;
    if (code <= 0xdb) return Take(LoadSize(code - 0xd9)), 0;
    if (code <= 0xdd) return LoadSize(code - 0xdc + 1);
    return 2 * LoadSize(code - 0xde + 1);
  }
  // A size of one, two or four bytes.
  uint64_t LoadSize(int bytes_log2) {
    if (bytes_log2 == 0) return Load<uint8_t>();
    return bytes_log2 == 1 ? Load<uint16_t>() : Load<uint32_t>();
  }

  template <typename T, typename Value>
  T InRange(Value value, T low, T high) {
    if (failed() || std::cmp_less(value, low) || std::cmp_greater(value, high)) {
      return Fail("a number outside its range"), T{};
    }
    return static_cast<T>(value);
  }

  const char* begin_;
  const char* at_;
  const char* end_;
  const char* failure_ = nullptr;
  int64_t failed_at_ = 0;
};

}  // namespace sluice::link
