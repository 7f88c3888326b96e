// Filters of texts.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/format/format.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/methods/methods.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value Changed(Run& run, const Value& value, const Arguments&) {
  return run.Made(kChange(TextOf(run, value)), value.IsMarkup());
}

Value Title(Run& run, const Value& value, const Arguments&) {
  return run.Made(JinjaTitle(TextOf(run, value)));
}

Value ToString(Run& run, const Value& value, const Arguments&) {
  if (value.AsString() != nullptr) return value;
  Value made = TextValue(run, value);
  run.Charge(made.AsString()->size());
  return made;
}

Value Trim(Run& run, const Value& value, const Arguments& arguments) {
  const Value of = TextValue(run, value);
  const std::string& text = *of.AsString();
  run.Charge(text.size());
  const bool is_given = GivenArgument(arguments, 0, "chars") != nullptr;
  const std::string_view made =
      is_given ? TrimmedOf(run, text, StringArgument(run, arguments, 0, "chars"), true, true)
               : Trimmed(text, true, true);
  run.Charge(made.size());
  return PartOf(of, made);
}

Value Replace(Run& run, const Value& value, const Arguments& arguments) {
  const bool is_given = GivenArgument(arguments, 2, "count") != nullptr;
  const int64_t most = is_given ? IntegerArgument(run, arguments, 2, "count") : -1;
  const Value of = TextValue(run, value);
  const Value by = TextValue(run, *arguments.Get(1, "new"));
  run.Charge(of.AsString()->size());
  run.Charge(by.AsString()->size());
  return run.Made(Replaced(run, of, TextOf(run, *arguments.Get(0, "old")), by, most));
}

Value Format(Run& run, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    run.Refuse("values with and without names of a format", "one of them");
  }
  const Value format = ToString(run, value, arguments);
  if (arguments.named.empty()) {
    return Formatted(run, format, Value::Of(List(arguments.positional), true));
  }
  Dict named;
  for (const auto& [name, given] : arguments.named) named.Set(run, Value::Of(name), given);
  return Formatted(run, format, Value::Of(std::move(named)));
}

Value Indent(Run& run, const Value& value, const Arguments& arguments) {
  if (value.AsString() == nullptr) {
    run.Refuse("indent of a " + std::string(value.TypeName()), "a string");
  }
  const Value* width = arguments.Get(0, "width");
  if (width != nullptr && width->IsMarkup() && !value.IsMarkup()) {
    run.Refuse("a width that is Markup for a text that is none", "a plain string");
  }
  const std::string space = width == nullptr ? "    " : SpaceOf(run, *width, "width");
  const bool first = FlagArgument(arguments, 1, "first");
  const bool blank = FlagArgument(arguments, 2, "blank");
  const std::string text = TextOf(run, value) + '\n';
  std::string made;
  bool is_first = true;
  for (std::string_view rest = text; !rest.empty();) {
    const Line line = FirstLine(rest);
    const bool is_indented = is_first ? first : !line.text.empty() || blank;
    if (!std::exchange(is_first, false)) made.push_back('\n');
    if (is_indented) made.append(space);
    made.append(line.text);
    run.Charge(space.size());
    run.ChargeElement(made.size());
    rest.remove_prefix(line.size);
  }
  return run.Made(std::move(made), value.IsMarkup());
}

Value Center(Run& run, const Value& value, const Arguments& arguments) {
  Arguments given;
  given.positional.push_back(Value::Of(IntegerArgument(run, arguments, 0, "width", 80)));
  const Value text = ToString(run, value, arguments);
  const Value method = StringMethod(text, "center");
  return (*method.As<std::shared_ptr<const Function>>())->call(run, given);
}

}  // namespace

std::span<const FilterRow> TextFilters() {
  static constexpr FilterRow kRows[] = {
      {"capitalize", "", Changed<Capitalized>},
      {"center", "width?", Center},
      {"format", "*", Format},
      {"indent", "width? first? blank?", Indent},
      {"lower", "", Changed<Lower>},
      {"replace", "old new count?", Replace},
      {"string", "", ToString},
      {"title", "", Title},
      {"trim", "chars?", Trim},
      {"upper", "", Changed<Upper>},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
