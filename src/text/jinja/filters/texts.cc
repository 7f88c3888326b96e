// Filters of texts.
#include <algorithm>

#include "text/jinja/filters/filters.h"
#include "text/jinja/format.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {
namespace {

std::string TextOf(Run& run, const Value& value) {
  std::string made = ToText(run, value);
  run.Charge(made.size());
  return made;
}

template <std::string (*kChange)(std::string_view)>
Value Changed(Run& run, const Value& value, const Arguments&) {
  return Value::Of(kChange(TextOf(run, value)));
}

Value ToString(Run& run, const Value& value, const Arguments&) {
  return value.AsString() != nullptr ? value : Value::Of(TextOf(run, value));
}

Value Escape(Run& run, const Value& value, const Arguments&) {
  return run.Made(Escaped(TextOf(run, value)));
}

Value Trim(Run& run, const Value& value, const Arguments& arguments) {
  const Value* characters = arguments.Get(0, "chars");
  const std::string of = TextOf(run, value);
  if (characters == nullptr || characters->IsNone()) {
    return Value::Of(std::string(Trimmed(of, true, true)));
  }
  return Value::Of(std::string(TrimmedOf(run, of, ToText(run, *characters), true, true)));
}

Value Replace(Run& run, const Value& value, const Arguments& arguments) {
  const Value* most = arguments.Get(2, "count");
  const Value* old = arguments.Get(0, "old");
  const Value* made = arguments.Get(1, "new");
  if (old == nullptr || made == nullptr) run.Refuse("replace", "what is replaced, and by what");
  return run.Made(Replaced(run, TextOf(run, value), ToText(run, *old), ToText(run, *made),
                           IntegerOf(run, most, "count", -1)));
}

Value Format(Run& run, const Value& value, const Arguments& arguments) {
  return Formatted(run, TextOf(run, value), arguments);
}

Value Indented(Run& run, const Value& value, const Arguments& arguments) {
  const Value* width = arguments.Get(0, "width");
  const Value* first = arguments.Get(1, "first");
  const Value* blank = arguments.Get(2, "blank");
  const std::string space =
      width == nullptr ? "    " : SpaceOf(run, *width, "width", size_t{1} << 16);
  std::string text = ToText(run, value);
  run.Charge(text.size());
  text.push_back('\n');
  std::string made;
  bool is_first = true;
  for (std::string_view rest = text; !rest.empty();) {
    const Line line = FirstLine(rest);
    const bool wants = is_first ? first != nullptr && first->IsTrue()
                                : !line.text.empty() || (blank != nullptr && blank->IsTrue());
    if (!std::exchange(is_first, false)) made.push_back('\n');
    if (wants) made.append(space);
    made.append(line.text);
    run.Charge(space.size());
    rest.remove_prefix(line.size);
  }
  return run.Made(std::move(made));
}

Value Centered(Run& run, const Value& value, const Arguments& arguments) {
  const std::string text = TextOf(run, value);
  const int64_t width = IntegerOf(run, arguments.Get(0, "width"), "width", 80);
  if (width > 65536) run.Refuse("a larger width", "at most 65536");
  const int64_t room = std::max<int64_t>(width - static_cast<int64_t>(CountCharacters(text)), 0);
  const int64_t left = room / 2 + (room & width & 1);  // as Python has it
  std::string made(static_cast<size_t>(left), ' ');
  return run.Made(made.append(text).append(static_cast<size_t>(room - left), ' '));
}

}  // namespace

std::span<const FilterRow> TextFilters() {
  static constexpr FilterRow kRows[] = {
      {"capitalize", "", Changed<Capitalized>},
      {"center", "width", Centered},
      {"e", "", Escape},
      {"escape", "", Escape},
      {"format", "*", Format},
      {"indent", "width first blank", Indented},
      {"lower", "", Changed<Lower>},
      {"replace", "old new count", Replace},
      {"safe", "", ToString},
      {"string", "", ToString},
      {"title", "", Changed<JinjaTitle>},
      {"trim", "chars", Trim},
      {"upper", "", Changed<Upper>},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
