// Methods of str that say of what kind its characters are.
#include "text/jinja/characters.h"
#include "text/jinja/methods/methods.h"
#include "text/jinja/strings.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

template <bool (*kIs)(uint32_t), bool kOfEmpty = false>
Value AreAll(Run& run, const Value& self, const Arguments&) {
  const std::string& text = *self.AsString();
  run.Charge(text.size());
  bool holds = kOfEmpty || !text.empty();
  ForEachCharacter(text, [&](uint32_t c, std::string_view) { holds = holds && kIs(c); });
  return Value::Of(holds);
}

bool IsAscii(uint32_t c) { return c < 0x80; }

template <bool kUpper>
Value HasCase(Run& run, const Value& self, const Arguments&) {
  run.Charge(self.AsString()->size());
  return Value::Of(HasOnlyCase(*self.AsString(), kUpper));
}

// Every word begins with a large letter, and has no other.
Value IsTitle(Run& run, const Value& self, const Arguments&) {
  run.Charge(self.AsString()->size());
  bool holds = true;
  bool is_inside = false;
  bool has_cased = false;
  ForEachCharacter(*self.AsString(), [&](uint32_t c, std::string_view) {
    const LetterCase letter = CaseOf(c);
    if (letter != LetterCase::kNone) holds = holds && (letter == LetterCase::kLower) == is_inside;
    is_inside = letter != LetterCase::kNone;
    has_cased = has_cased || is_inside;
  });
  return Value::Of(holds && has_cased);
}

Value IsIdentifier(Run& run, const Value& self, const Arguments&) {
  run.Charge(self.AsString()->size());
  bool holds = !self.AsString()->empty();
  bool is_first = true;
  ForEachCharacter(*self.AsString(), [&](uint32_t c, std::string_view) {
    holds = holds && (is_first ? BeginsIdentifier(c) : IsInIdentifier(c));
    is_first = false;
  });
  return Value::Of(holds);
}

}  // namespace

std::span<const MethodRow> ClassMethods() {
  static constexpr MethodRow kRows[] = {
      {"isalnum", "", AreAll<IsPythonAlnum>},
      {"isalpha", "", AreAll<IsLetter>},
      {"isascii", "", AreAll<IsAscii, true>},
      {"isdecimal", "", AreAll<IsDecimalDigit>},
      {"isdigit", "", AreAll<IsPythonDigit>},
      {"isidentifier", "", IsIdentifier},
      {"islower", "", HasCase<false>},
      {"isnumeric", "", AreAll<IsPythonNumeric>},
      {"isprintable", "", AreAll<IsPrintable, true>},
      {"isspace", "", AreAll<IsPythonSpace>},
      {"istitle", "", IsTitle},
      {"isupper", "", HasCase<true>},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
