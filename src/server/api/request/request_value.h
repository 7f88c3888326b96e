// The values of a request's body, and the fields that an object may have.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "json/value_reader.h"
#include "server/api/api_error.h"

namespace sluice::server {

inline constexpr size_t kMostUnknownFields = 64;  // that are listed; a body may have millions

class RequestValue : public json::ValueReader {
 public:
  using ValueReader::ForEachElement;
  using ValueReader::Ids;
  using ValueReader::Quoted;
  using ValueReader::Refuse;
  using ValueReader::ValueReader;

  std::string_view name() const { return name_; }
  json::Json json() const { return value_; }
  json::json_type type() const { return TypeOf(value_); }
  bool IsNull() const { return type() == json::json_type::null; }
  RequestValue Part(std::string_view name, json::Json value) const { return {name, value}; }

  // use(value): of each element of a list.
  template <typename Use>
  void ForEachValue(const char* allowed, Use use) const {
    ForEachElement(value_, allowed, [&](json::Json value) { use(RequestValue(name_, value)); });
  }

  // Walks through a value that is not used; what is no JSON in it is an error.
  void Skip() const { json::Skip(value_, kDepth); }

  // The part that an error shows.
  std::string Shown() const { return json::Shown(value_); }

 private:
  static constexpr int kDepth = 2;  // of a field's value; deeper ones are counted from here as well
};

// Appends a value as it is, without white space and with texts as AppendEscaped writes them. What
// is no JSON in it, or deeper than 64 levels, is an error.
void AppendJson(const RequestValue& value, std::string& out);

// use(value): of an object or a list that AppendJson has written.
template <typename Use>
void ReadAgain(std::string_view name, std::string_view json, Use use) {
  simdjson::ondemand::parser parser;
  const simdjson::padded_string padded(json);
  auto document = json::Get(parser.iterate(padded));
  use(RequestValue(name, json::Get(document.get_value())));
}

// Code that answers a client throws ApiFailures; code that reads throws Errors.
template <typename Body>
auto WithApiErrors(Body body) {
  try {
    return body();
  } catch (const Error& error) {
    throw ApiFailure(ToApiError(error));
  }
}

// Malformed JSON has no name of its own: the error names the field that it was found in.
template <typename Body>
void WithinField(std::string_view name, Body body) {
  try {
    body();
  } catch (const Error& error) {
    ApiError refusal = ToApiError(error);
    if (refusal.param.empty()) refusal.param = name;
    throw ApiFailure(std::move(refusal));
  }
}

// Those of an object's fields that came already; only names that a reader accepts, so they are few.
class SeenFields {
 public:
  // False where it came before.
  bool Add(std::string_view name) {
    for (const std::string& other : names_) {
      if (other == name) return false;
    }
    names_.emplace_back(name);
    return true;
  }
  size_t size() const { return names_.size(); }

 private:
  std::vector<std::string> names_;
};

inline void AddUnknown(std::string_view name, std::vector<std::string>& unknown) {
  if (unknown.size() == kMostUnknownFields) return;
  for (const std::string& other : unknown) {
    if (other == name) return;
  }
  unknown.emplace_back(name);
}

}  // namespace sluice::server
