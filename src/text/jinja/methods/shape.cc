// Methods of str that change its letters, or what stands around it.
#include <algorithm>

#include "text/jinja/arguments.h"
#include "text/jinja/format/format.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/methods/methods.h"
#include "text/jinja/strings.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value Changed(Run& run, const Value& self, const Arguments&) {
  run.Charge(self.AsString()->size());
  return run.Made(kChange(*self.AsString()), self.IsMarkup());
}

template <bool kLeft, bool kRight>
Value Strip(Run& run, const Value& self, const Arguments& arguments) {
  const std::string& text = *self.AsString();
  const bool is_given = GivenArgument(arguments, 0, "chars") != nullptr;
  const std::string_view made =
      is_given ? TrimmedOf(run, text, StringArgument(run, arguments, 0, "chars"), kLeft, kRight)
               : Trimmed(text, kLeft, kRight);
  run.Charge(made.size());
  return PartOf(self, made);
}

// How the room on both sides of a text is parted.
enum class Side : uint8_t { kLeft, kRight, kBoth };

template <Side kSide>
Value Justify(Run& run, const Value& self, const Arguments& arguments) {
  const std::string& text = *self.AsString();
  const int64_t width = IntegerArgument(run, arguments, 0, "width");
  std::string fill = " ";
  if (arguments.Get(1, "fillchar") != nullptr) {
    const std::string& given = StringArgument(run, arguments, 1, "fillchar");
    const bool escapes = self.IsMarkup() && !arguments.Get(1, "fillchar")->IsMarkup();
    fill = escapes ? Escaped(given) : given;
    if (CountCharacters(fill) != 1) run.Refuse("the argument fillchar", "one character");
  }
  run.Charge(text.size());
  const int64_t room = std::max<int64_t>(0, width - static_cast<int64_t>(CountCharacters(text)));
  const int64_t left = kSide == Side::kLeft    ? 0
                       : kSide == Side::kRight ? room
                                               : room / 2 + (room & width & 1);  // as Python has it
  std::string made;
  run.AppendTimes(fill, left, made);
  made.append(text);
  run.AppendTimes(fill, room - left, made);
  return run.Made(std::move(made), self.IsMarkup());
}

// Zeros go between a sign and what follows it.
Value FillZeros(Run& run, const Value& self, const Arguments& arguments) {
  std::string_view text = *self.AsString();
  run.Charge(text.size());
  const int64_t room =
      IntegerArgument(run, arguments, 0, "width") - static_cast<int64_t>(CountCharacters(text));
  std::string made;
  if (room > 0 && (text.starts_with('-') || text.starts_with('+'))) {
    made.push_back(text[0]);
    text.remove_prefix(1);
  }
  run.AppendTimes("0", room, made);
  return run.Made(made.append(text), self.IsMarkup());
}

Value ExpandTabs(Run& run, const Value& self, const Arguments& arguments) {
  const int64_t size = IntegerArgument(run, arguments, 0, "tabsize", 8);
  std::string made;
  int64_t column = 0;
  run.Charge(self.AsString()->size());
  ForEachCharacter(*self.AsString(), [&](uint32_t c, std::string_view bytes) {
    if (c == 9) {
      const int64_t room = size > 0 ? size - column % size : 0;
      run.AppendTimes(" ", room, made);
      column += room;
    } else {
      made.append(bytes);
      column = c == 10 || c == 13 ? 0 : column + 1;
    }
  });
  return run.Made(std::move(made), self.IsMarkup());
}

Value Format(Run& run, const Value& self, const Arguments& arguments) {
  return FormattedFields(run, self, arguments.positional, arguments.named, nullptr);
}

Value FormatMap(Run& run, const Value& self, const Arguments& arguments) {
  return FormattedFields(run, self, {}, {}, &arguments.positional[0]);
}

template <int kWhich>
Value NotHere(Run& run, const Value&, const Arguments&) {
  constexpr const char* kNames[] = {"encode", "maketrans", "translate"};
  run.Refuse(std::string("the method ") + kNames[kWhich], "another method of a string");
}

}  // namespace

std::span<const MethodRow> ShapeMethods() {
  static constexpr MethodRow kRows[] = {
      {"capitalize", "", Changed<Capitalized>},
      {"casefold", "", Changed<Folded>},
      {"center", "/width fillchar?", Justify<Side::kBoth>},
      {"encode", nullptr, NotHere<0>},
      {"expandtabs", "tabsize?", ExpandTabs},
      {"format", nullptr, Format},
      {"format_map", "/mapping", FormatMap},
      {"ljust", "/width fillchar?", Justify<Side::kLeft>},
      {"lower", "", Changed<Lower>},
      {"lstrip", "/chars?", Strip<true, false>},
      {"maketrans", nullptr, NotHere<1>},
      {"rjust", "/width fillchar?", Justify<Side::kRight>},
      {"rstrip", "/chars?", Strip<false, true>},
      {"strip", "/chars?", Strip<true, true>},
      {"swapcase", "", Changed<CaseSwapped>},
      {"title", "", Changed<PythonTitle>},
      {"translate", nullptr, NotHere<2>},
      {"upper", "", Changed<Upper>},
      {"zfill", "/width", FillZeros},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
