// Methods of str that look for a text in another, and replace it.
#include <algorithm>
#include <optional>

#include "text/jinja/arguments.h"
#include "text/jinja/find.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/methods/methods.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {
namespace {

// The part of a text that two arguments name as a slice does; none where it begins after the end.
std::optional<std::string_view> PartOf(Run& run, std::string_view text, const Arguments& arguments,
                                       size_t* before = nullptr) {
  const auto size = static_cast<int64_t>(CountCharacters(text));
  run.Charge(text.size());
  const auto place = [&](size_t at, std::string_view name, int64_t otherwise) {
    if (GivenArgument(arguments, at, name) == nullptr) return otherwise;
    const int64_t given = IntegerArgument(run, arguments, at, name);
    return given < 0 ? std::max<int64_t>(given + size, 0) : given;
  };
  const int64_t begin = place(1, "start", 0);
  const int64_t end = std::min(place(2, "end", size), size);
  if (begin > end) return std::nullopt;
  if (before != nullptr) *before = static_cast<size_t>(begin);
  return CharactersFrom(text, static_cast<size_t>(begin), static_cast<size_t>(end));
}

// str.startswith and str.endswith take one text or a tuple of them.
Value Matches(Run& run, const Value& self, const Arguments& arguments, bool at_the_end) {
  const std::optional<std::string_view> part = PartOf(run, *self.AsString(), arguments);
  const auto matches = [&](std::string_view of) {
    run.Charge(of.size());
    return part && (at_the_end ? part->ends_with(of) : part->starts_with(of));
  };
  const Value& value = *arguments.Get(0, "prefix");
  if (value.IsTuple()) {
    const List& texts = *value.AsList();
    return Value::Of(std::any_of(texts.begin(), texts.end(), [&](const Value& item) {
      run.Charge();
      if (item.AsString() == nullptr) run.Refuse("the argument prefix", "strings");
      return matches(*item.AsString());
    }));
  }
  return Value::Of(matches(StringArgument(run, arguments, 0, "prefix")));
}

Value StartsWith(Run& run, const Value& self, const Arguments& arguments) {
  return Matches(run, self, arguments, false);
}

Value EndsWith(Run& run, const Value& self, const Arguments& arguments) {
  return Matches(run, self, arguments, true);
}

// The place of the first or the last such text; -1 where there is none.
int64_t PlaceIn(Run& run, const Value& self, const Arguments& arguments, bool from_right) {
  const std::string& part = StringArgument(run, arguments, 0, "sub");
  size_t before = 0;
  const std::optional<std::string_view> in = PartOf(run, *self.AsString(), arguments, &before);
  if (!in) return -1;
  const size_t at = from_right ? LastIn(run, *in, part) : Finder(run, part).In(*in);
  if (at == std::string_view::npos) return -1;
  return static_cast<int64_t>(before + CountCharacters(in->substr(0, at)));
}

template <bool kFromRight>
Value Find(Run& run, const Value& self, const Arguments& arguments) {
  return Value::Of(PlaceIn(run, self, arguments, kFromRight));
}

template <bool kFromRight>
Value Index(Run& run, const Value& self, const Arguments& arguments) {
  const int64_t place = PlaceIn(run, self, arguments, kFromRight);
  if (place < 0) run.Refuse("the index of a text that is not in the string", "one that is");
  return Value::Of(place);
}

Value Count(Run& run, const Value& self, const Arguments& arguments) {
  const std::string& part = StringArgument(run, arguments, 0, "sub");
  const std::optional<std::string_view> in = PartOf(run, *self.AsString(), arguments);
  if (!in) return Value::Of(int64_t{0});
  if (part.empty()) return Value::Of(CountCharacters(*in) + 1);
  size_t count = 0;
  const Finder finder(run, part);
  for (size_t at = finder.In(*in); at != std::string_view::npos;
       at = finder.In(*in, at + part.size())) {
    ++count;
  }
  return Value::Of(count);
}

Value Replace(Run& run, const Value& self, const Arguments& arguments) {
  const std::string& old = StringArgument(run, arguments, 0, "old");
  const Value& given = *arguments.Get(1, "new");
  const bool escapes = self.IsMarkup() && !given.IsMarkup();
  if (!escapes) StringArgument(run, arguments, 1, "new");
  const Value by = escapes ? Value::Of(Escaped(ToText(run, given))) : given;
  const int64_t most = IntegerArgument(run, arguments, 2, "count", -1);
  return run.Made(Replaced(run, self, old, by, most), self.IsMarkup());
}

Value RemovePrefix(Run& run, const Value& self, const Arguments& arguments) {
  std::string_view text = *self.AsString();
  const std::string& prefix = StringArgument(run, arguments, 0, "prefix");
  run.Charge(prefix.size());
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  run.Charge(text.size());
  return PartOf(self, text);
}

Value RemoveSuffix(Run& run, const Value& self, const Arguments& arguments) {
  std::string_view text = *self.AsString();
  const std::string& suffix = StringArgument(run, arguments, 0, "suffix");
  run.Charge(suffix.size());
  if (text.ends_with(suffix)) text.remove_suffix(suffix.size());
  run.Charge(text.size());
  return PartOf(self, text);
}

}  // namespace

std::span<const MethodRow> SearchMethods() {
  static constexpr MethodRow kRows[] = {
      {"count", "/sub start? end?", Count},
      {"endswith", "/prefix start? end?", EndsWith},
      {"find", "/sub start? end?", Find<false>},
      {"index", "/sub start? end?", Index<false>},
      {"removeprefix", "/prefix", RemovePrefix},
      {"removesuffix", "/suffix", RemoveSuffix},
      {"replace", "/old new count?", Replace},
      {"rfind", "/sub start? end?", Find<true>},
      {"rindex", "/sub start? end?", Index<true>},
      {"startswith", "/prefix start? end?", StartsWith},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
