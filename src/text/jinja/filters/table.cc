// The filter of a name, and what its file has in common with others.
#include <algorithm>

#include "text/jinja/filters/filters.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/syntax/level.h"

namespace sluice::text::jinja {
namespace {

const FilterRow* FindFilter(std::string_view name) {
  for (const auto filters : {HtmlFilters(), ListFilters(), NumberFilters(), OrderFilters(),
                             SelectionFilters(), TextFilters(), ValueFilters(), WordFilters()}) {
    const auto found = std::find_if(filters.begin(), filters.end(),
                                    [&](const FilterRow& row) { return row.name == name; });
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

}  // namespace

std::string TextOf(Run& run, const Value& value) {
  std::string made = ToText(run, value);
  run.Charge(made.size());
  return made;
}

std::string SpaceOf(Run& run, const Value& value, std::string_view name) {
  if (value.AsString() != nullptr) return *value.AsString();
  if (!value.IsInteger()) run.Refuse("the argument " + std::string(name), "an integer or a string");
  std::string made;
  run.AppendTimes(" ", value.Integer(), made);
  return made;
}

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

Value Run::Filter(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
  const FilterRow* row = FindFilter(name);
  if (row == nullptr) Refuse("the filter " + std::string(name), "one of the usual filters");
  if (row->parameters != "*") CheckArguments(name, row->parameters, arguments);
  const Level level(*this);  // map calls filters
  const bool is_own = value.AsString() != nullptr && IsOwn(value) && AreOwn(arguments);
  return OwnIf(is_own, row->call(*this, value, arguments));
}

}  // namespace sluice::text::jinja
