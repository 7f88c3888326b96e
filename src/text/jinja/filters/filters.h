// The filters, in tables: a file has those of one subject.
#pragma once

#include <span>
#include <string_view>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

struct FilterRow {
  std::string_view name;
  std::string_view parameters;  // as Function has them; *: it looks at them itself
  Value (*call)(Run& run, const Value& value, const Arguments& arguments);
};

std::span<const FilterRow> HtmlFilters();
std::span<const FilterRow> ListFilters();
std::span<const FilterRow> NumberFilters();
std::span<const FilterRow> OrderFilters();
std::span<const FilterRow> SelectionFilters();
std::span<const FilterRow> TextFilters();
std::span<const FilterRow> ValueFilters();
std::span<const FilterRow> WordFilters();

// The member of a value that "a.b", a number or none names; `otherwise` is for missing ones.
Value MemberOf(Run& run, const Value& value, const Value& attribute,
               const Value* otherwise = nullptr);

// So many spaces, or a text.
std::string SpaceOf(Run& run, const Value& value, std::string_view name);

// str(), charged for.
std::string TextOf(Run& run, const Value& value);

// Filters with files of their own.
Value PrettyPrint(Run& run, const Value& value, const Arguments& arguments);
Value WordWrap(Run& run, const Value& value, const Arguments& arguments);

}  // namespace sluice::text::jinja
