// Writes JSON to a stream, compactly and in the order of the calls. What JSON cannot say (infinity,
// NaN) becomes null.
#pragma once

#include <cmath>
#include <ostream>
#include <string_view>
#include <type_traits>

#include "support/number.h"

namespace sluice {

class JsonWriter {
 public:
  explicit JsonWriter(std::ostream& out) : out_(out) {}

  template <typename Body>
  void Object(Body body) {
    Nested('{', '}', body);
  }
  template <typename Body>
  void Array(Body body) {
    Nested('[', ']', body);
  }

  // The name of the value that is written next.
  JsonWriter& Key(std::string_view name) {
    Separate();
    String(name);
    out_ << ':';
    is_first_ = true;
    return *this;
  }

  template <typename T>
  void Value(const T& value) {
    Separate();
    if constexpr (std::is_same_v<T, bool>) {
      out_ << (value ? "true" : "false");
    } else if constexpr (std::is_floating_point_v<T>) {
      out_ << (std::isfinite(value) ? Number(value) : "null");
    } else if constexpr (std::is_integral_v<T>) {
      out_ << Number(value);
    } else {
      String(value);
    }
  }

  // A value that is JSON already.
  void Raw(std::string_view json) {
    Separate();
    out_ << json;
  }

  void Null() {
    Separate();
    out_ << "null";
  }

 private:
  void Separate() {
    if (!is_first_) out_ << ',';
    is_first_ = false;
  }

  template <typename Body>
  void Nested(char open, char close, Body& body) {
    Separate();
    out_ << open;
    is_first_ = true;
    body();
    out_ << close;
    is_first_ = false;
  }

  void String(std::string_view text) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out_ << '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out_ << '\\' << c;
      } else if (byte < 0x20) {
        out_ << "\\u00" << kHex[byte >> 4] << kHex[byte & 15];
      } else {
        out_ << c;
      }
    }
    out_ << '"';
  }

  std::ostream& out_;
  bool is_first_ = true;  // no comma goes before the next value
};

}  // namespace sluice
