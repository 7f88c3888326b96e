// Fields of a JSON object that says what a model is. A missing field has the default that its
// family has; one of the wrong type or out of range is an Error naming the file and the field.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "support/check.h"

namespace sluice::model {

class JsonFields {
 public:
  // where: "config.json" or "config.json: rope_scaling", for messages.
  JsonFields(simdjson::dom::object object, std::string where)
      : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  std::string NameOf(std::string_view field) const {
    return std::string(where_).append(": ").append(field);
  }

  // Nothing where the field is missing or null.
  std::optional<simdjson::dom::element> Find(std::string_view field) const {
    simdjson::dom::element value;
    if (object_[field].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
    return value;
  }
  bool Has(std::string_view field) const { return Find(field).has_value(); }
  bool IsNull(std::string_view field) const {
    simdjson::dom::element value;
    return object_[field].get(value) == simdjson::SUCCESS && value.is_null();
  }

  int64_t Integer(std::string_view field, std::optional<int64_t> otherwise, int64_t low,
                  int64_t high) const {
    const auto value = Find(field);
    if (!value) {
      if (!otherwise) Refuse(field, "missing", RangeText(low, high));
      CheckInRange(NameOf(field), *otherwise, low, high);
      return *otherwise;
    }
    int64_t number = 0;
    if (value->get(number) != simdjson::SUCCESS || number < low || number > high) {
      Refuse(field, simdjson::minify(*value), RangeText(low, high));
    }
    return number;
  }

  float Number(std::string_view field, std::optional<double> otherwise, double low,
               double high) const {
    const auto value = Find(field);
    const std::string allowed =
        std::string("[").append(ToText(low)) + std::string(", ").append(ToText(high)) + "]";
    if (!value) {
      if (!otherwise) Refuse(field, "missing", allowed);
      return static_cast<float>(*otherwise);
    }
    double number = 0.0;
    if (value->get(number) != simdjson::SUCCESS || !(number >= low && number <= high)) {
      Refuse(field, simdjson::minify(*value), allowed);
    }
    return static_cast<float>(number);
  }

  bool Flag(std::string_view field, bool otherwise) const {
    const auto value = Find(field);
    if (!value) return otherwise;
    bool flag = false;
    if (value->get(flag) != simdjson::SUCCESS) {
      Refuse(field, simdjson::minify(*value), "true or false");
    }
    return flag;
  }

  std::string Text(std::string_view field, std::string_view otherwise) const {
    const auto value = Find(field);
    if (!value) return std::string(otherwise);
    std::string_view text;
    if (value->get(text) != simdjson::SUCCESS) {
      Refuse(field, simdjson::minify(*value), "a string");
    }
    return std::string(text);
  }

  std::optional<JsonFields> Object(std::string_view field) const {
    const auto value = Find(field);
    if (!value) return std::nullopt;
    simdjson::dom::object object;
    if (value->get(object) != simdjson::SUCCESS) {
      Refuse(field, simdjson::minify(*value), "an object");
    }
    return JsonFields(object, NameOf(field));
  }

  [[noreturn]] void Refuse(std::string_view field, const std::string& value,
                           const std::string& allowed) const {
    constexpr size_t kShown = 80;
    ThrowInvalid(NameOf(field), value.size() > kShown ? value.substr(0, kShown) + "..." : value,
                 allowed);
  }

 private:
  simdjson::dom::object object_;
  std::string where_;
};

}  // namespace sluice::model
