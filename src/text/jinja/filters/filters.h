// The filters, in tables: a file has those of one subject.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

struct FilterRow {
  std::string_view name;
  std::string_view parameters;  // the names of its arguments; *: it looks at them itself
  Value (*call)(Run& run, const Value& value, const Arguments& arguments);
};

std::span<const FilterRow> ListFilters();
std::span<const FilterRow> NumberFilters();
std::span<const FilterRow> OrderFilters();
std::span<const FilterRow> SelectionFilters();
std::span<const FilterRow> TextFilters();
std::span<const FilterRow> ValueFilters();

// "a.b" of a value, as map, selectattr and others name members.
Value MemberOf(Run& run, const Value& value, std::string_view path);

// An argument that is an integer; `otherwise` where it is missing or none.
int64_t IntegerOf(const Run& run, const Value* value, std::string_view name, int64_t otherwise);
std::string_view TextArgument(const Run& run, const Value* value, std::string_view name);

// So many spaces, or a text.
std::string SpaceOf(const Run& run, const Value& value, std::string_view name, size_t most);

}  // namespace sluice::text::jinja
