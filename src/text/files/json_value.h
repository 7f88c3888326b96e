// A value of a JSON file with the path to it, so that an error can name what is wrong.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice::text {

class JsonValue {
 public:
  using Type = simdjson::dom::element_type;

  JsonValue() = default;  // absent
  JsonValue(simdjson::dom::element element, std::string path)
      : element_(element), path_(std::move(path)), is_present_(true) {}

  const std::string& path() const { return path_; }
  Type type() const { return element_.type(); }
  bool IsNull() const { return !is_present_ || element_.is_null(); }
  bool IsString() const { return !IsNull() && element_.is_string(); }
  bool IsObject() const { return !IsNull() && element_.is_object(); }
  bool IsArray() const { return !IsNull() && element_.is_array(); }

  // The member of that name; absent when there is none.
  JsonValue operator[](std::string_view key) const {
    simdjson::dom::object object;
    if (IsNull() || element_.get(object) != simdjson::SUCCESS) Refuse("an object");
    simdjson::dom::element member;
    JsonValue value;
    value.path_ = path_.empty() ? std::string(key) : path_ + "." + std::string(key);
    if (object[key].get(member) != simdjson::SUCCESS) return value;
    return {member, value.path_};
  }

  std::string_view String() const { return Get<std::string_view>("a string"); }
  std::string_view String(std::string_view otherwise) const {
    return IsNull() ? otherwise : String();
  }
  bool Bool(bool otherwise) const { return IsNull() ? otherwise : Get<bool>("true or false"); }
  int64_t Integer() const { return Get<int64_t>("a whole number"); }
  int64_t Integer(int64_t otherwise) const { return IsNull() ? otherwise : Integer(); }

  // f(JsonValue) for each element; f(std::string_view key, JsonValue) for each member.
  template <typename F>
  void ForEachElement(F f) const {
    size_t i = 0;
    for (const auto element : Get<simdjson::dom::array>("a list")) {
      f(JsonValue(element, path_ + "[" + std::to_string(i++) + "]"));
    }
  }
  template <typename F>
  void ForEachMember(F f) const {
    for (const auto member : Get<simdjson::dom::object>("an object")) {
      f(member.key, JsonValue(member.value, path_));
    }
  }

  [[noreturn]] void Refuse(std::string_view allowed) const {
    std::string shown = IsNull() ? "null" : simdjson::minify(element_);
    constexpr size_t kLongest = 60;
    if (shown.size() > kLongest) {
      shown.resize(ValidPrefix(std::string_view(shown).substr(0, kLongest)));
      shown.append("...");
    }
    ThrowInvalid(path_, std::move(shown), std::string(allowed));
  }

  template <typename T>
  T Get(std::string_view allowed) const {
    T value{};
    if (IsNull() || element_.get(value) != simdjson::SUCCESS) Refuse(allowed);
    return value;
  }

 private:
  simdjson::dom::element element_;
  std::string path_;
  bool is_present_ = false;
};

}  // namespace sluice::text
