// The fields of a body by their names: those of tables, and further ones of the reader.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/request_value.h"

namespace sluice::server {

template <typename T>
struct RequestField {
  std::string_view name;
  std::string_view schema;  // JSON Schema of its values but null; empty: it is refused
  void (*read)(T& to, const RequestValue& value);
};

// For /openapi.json.
struct FieldSchema {
  std::string_view name;
  std::string schema;
};

template <typename T>
void AddSchemas(std::span<const RequestField<T>> fields, std::vector<FieldSchema>& to) {
  for (const RequestField<T>& field : fields) {
    if (!field.schema.empty()) to.push_back({field.name, std::string(field.schema)});
  }
}

template <typename T>
const RequestField<T>* FieldOf(std::span<const RequestField<T>> fields, std::string_view name) {
  for (const RequestField<T>& field : fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

// read(value): of the first field of each name that is known, if it is not null. Gives the others'
// names. Throws ApiFailure.
template <typename IsKnown, typename Read>
std::vector<std::string> ReadBody(std::string_view body, IsKnown is_known, Read read) {
  std::vector<std::string> unknown;
  SeenFields seen;
  WithApiErrors([&] {
    json::ForEachFieldOf(body, [&](const std::string& name, json::Json json) {
      WithinField(name, [&] {
        const RequestValue value(name, json);
        const bool is_read = is_known(name);
        if (!is_read) AddUnknown(name, unknown);
        if (is_read && seen.Add(name) && !value.IsNull()) {
          read(value);
        } else {
          value.Skip();
        }
      });
    });
  });
  return unknown;
}

}  // namespace sluice::server
