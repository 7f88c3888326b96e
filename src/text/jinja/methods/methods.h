// The methods of strings, in tables: a file has those of one subject.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

struct MethodRow {
  std::string_view name;
  const char* parameters;  // as Function has them; null: it looks at its arguments itself
  Value (*call)(Run& run, const Value& self, const Arguments& arguments);
};

std::span<const MethodRow> ClassMethods();
std::span<const MethodRow> SearchMethods();
std::span<const MethodRow> ShapeMethods();
std::span<const MethodRow> SplitMethods();

// A method of a string, a list, a dict or another value; undefined where it has none of that name.
Value StringMethod(const Value& self, std::string_view name);
Value ContainerMethod(const Value& self, std::string_view name);

// A method that keeps what it is called of.
Value BoundMethod(const MethodRow& row, const Value& self);

}  // namespace sluice::text::jinja
