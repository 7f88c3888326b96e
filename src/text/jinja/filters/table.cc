// The filter of a name, and what its file has in common with others.
#include <algorithm>

#include "text/jinja/filters/filters.h"
#include "text/jinja/level.h"

namespace sluice::text::jinja {
namespace {

const FilterRow* FindFilter(std::string_view name) {
  for (const auto filters : {ListFilters(), NumberFilters(), OrderFilters(), SelectionFilters(),
                             TextFilters(), ValueFilters()}) {
    const auto found = std::find_if(filters.begin(), filters.end(),
                                    [&](const FilterRow& row) { return row.name == name; });
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

int64_t IntegerOf(const Run& run, const Value* value, std::string_view name, int64_t otherwise) {
  if (value == nullptr || value->IsNone()) return otherwise;
  if (!value->IsInteger()) run.Refuse("the argument " + std::string(name), "an integer");
  return value->Integer();
}

std::string_view TextArgument(const Run& run, const Value* value, std::string_view name) {
  if (value == nullptr || value->AsString() == nullptr) {
    run.Refuse("the argument " + std::string(name), "a string");
  }
  return *value->AsString();
}

std::string SpaceOf(const Run& run, const Value& value, std::string_view name, size_t most) {
  const bool is_text = value.AsString() != nullptr;
  const auto count = is_text ? static_cast<int64_t>(value.AsString()->size())
                             : std::max<int64_t>(IntegerOf(run, &value, name, 0), 0);
  if (count > static_cast<int64_t>(most)) {
    run.Refuse("a larger " + std::string(name), "at most " + std::to_string(most));
  }
  return is_text ? *value.AsString() : std::string(static_cast<size_t>(count), ' ');
}

Value Run::Filter(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
  const FilterRow* row = FindFilter(name);
  if (row == nullptr) Refuse("the filter " + std::string(name), "one of the usual filters");
  if (row->parameters != "*") CheckArguments(name, row->parameters, arguments);
  const Level level(*this);  // map calls filters
  return row->call(*this, value, arguments);
}

}  // namespace sluice::text::jinja
