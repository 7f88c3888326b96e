// Filters that go by words.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/filters/filters.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

Value CountWords(Run& run, const Value& value, const Arguments&) {
  int64_t count = 0;
  bool is_inside = false;
  ForEachCharacter(TextOf(run, value), [&](uint32_t c, std::string_view) {
    const bool is_word = c == '_' || IsPythonAlnum(c);
    count += is_word && !is_inside ? 1 : 0;
    is_inside = is_word;
  });
  return Value::Of(count);
}

// A text that is longer than `length` by more than `leeway` is cut at a space, or in a word.
Value Truncate(Run& run, const Value& value, const Arguments& arguments) {
  const int64_t length = IntegerArgument(run, arguments, 0, "length", 255);
  const bool cuts_words = FlagArgument(arguments, 1, "killwords");
  const Value* given = arguments.Get(2, "end");
  const Value end = given == nullptr ? Value::Of(std::string("...")) : *given;
  const bool has_leeway = GivenArgument(arguments, 3, "leeway") != nullptr;
  const int64_t leeway = has_leeway ? IntegerArgument(run, arguments, 3, "leeway") : 5;
  const int64_t size = run.Filter("length", value, {}).Integer();
  const int64_t end_size = run.Filter("length", end, {}).Integer();
  if (length < end_size || leeway < 0) {
    run.Refuse("a length or a leeway that is too small",
               "a length of at least that of `end`, and a leeway of 0");
  }
  if (size - leeway <= length) return value;
  const std::string* text = value.AsString();
  if (text == nullptr || end.AsString() == nullptr) {
    run.Refuse("truncate of a " + std::string(value.TypeName()), "a string");
  }
  run.Charge(text->size());
  std::string_view kept = CharactersFrom(*text, 0, static_cast<size_t>(length - end_size));
  if (!cuts_words) kept = kept.substr(0, kept.rfind(' '));
  return run.Binary("+", Value::Text(std::string(kept), value.IsMarkup()), end);
}

}  // namespace

std::span<const FilterRow> WordFilters() {
  static constexpr FilterRow kRows[] = {
      {"truncate", "length? killwords? end? leeway?", Truncate},
      {"wordcount", "", CountWords},
      {"wordwrap", "width? break_long_words? wrapstring? break_on_hyphens?", WordWrap},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
