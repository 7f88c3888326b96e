// Filters that make HTML, or take it apart.
#include <algorithm>
#include <array>

#include "text/jinja/arguments.h"
#include "text/jinja/characters.h"
#include "text/jinja/filters/filters.h"
#include "text/jinja/strings.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

Value Escape(Run& run, const Value& value, const Arguments&) {
  return value.IsMarkup() ? value : run.Made(Escaped(TextOf(run, value)), true);
}

Value ForceEscape(Run& run, const Value& value, const Arguments&) {
  return run.Made(Escaped(TextOf(run, value)), true);
}

Value Safe(Run& run, const Value& value, const Arguments&) {
  return Value::Text(TextOf(run, value), true);
}

// The names of U+00A0 to U+00FF, which may stand without a semicolon.
constexpr std::array<std::string_view, 96> kLatinNames = {
    "nbsp",   "iexcl",  "cent",   "pound",  "curren", "yen",    "brvbar", "sect",   "uml",
    "copy",   "ordf",   "laquo",  "not",    "shy",    "reg",    "macr",   "deg",    "plusmn",
    "sup2",   "sup3",   "acute",  "micro",  "para",   "middot", "cedil",  "sup1",   "ordm",
    "raquo",  "frac14", "frac12", "frac34", "iquest", "Agrave", "Aacute", "Acirc",  "Atilde",
    "Auml",   "Aring",  "AElig",  "Ccedil", "Egrave", "Eacute", "Ecirc",  "Euml",   "Igrave",
    "Iacute", "Icirc",  "Iuml",   "ETH",    "Ntilde", "Ograve", "Oacute", "Ocirc",  "Otilde",
    "Ouml",   "times",  "Oslash", "Ugrave", "Uacute", "Ucirc",  "Uuml",   "Yacute", "THORN",
    "szlig",  "agrave", "aacute", "acirc",  "atilde", "auml",   "aring",  "aelig",  "ccedil",
    "egrave", "eacute", "ecirc",  "euml",   "igrave", "iacute", "icirc",  "iuml",   "eth",
    "ntilde", "ograve", "oacute", "ocirc",  "otilde", "ouml",   "divide", "oslash", "ugrave",
    "uacute", "ucirc",  "uuml",   "yacute", "thorn",  "yuml"};
struct NamedCharacter {
  std::string_view name;
  uint32_t character;
};
constexpr std::array<NamedCharacter, 10> kOtherNames = {{{"AMP", '&'},
                                                         {"COPY", 0xA9},
                                                         {"GT", '>'},
                                                         {"LT", '<'},
                                                         {"QUOT", '"'},
                                                         {"REG", 0xAE},
                                                         {"amp", '&'},
                                                         {"gt", '>'},
                                                         {"lt", '<'},
                                                         {"quot", '"'}}};

uint32_t CharacterOf(std::string_view name) {
  const auto latin = std::find(kLatinNames.begin(), kLatinNames.end(), name);
  if (latin != kLatinNames.end()) return 0xA0 + static_cast<uint32_t>(latin - kLatinNames.begin());
  const auto other = std::find_if(kOtherNames.begin(), kOtherNames.end(),
                                  [&](const NamedCharacter& row) { return row.name == name; });
  return other == kOtherNames.end() ? 0 : other->character;
}

// &#10; and &#xA;. The C1 controls are those of Windows-1252.
void AppendNumbered(std::string_view digits, bool is_hex, std::string& made) {
  constexpr std::array<uint16_t, 32> kWindows = {
      0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
      0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
      0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178};
  uint32_t c = 0;
  for (const char digit : digits) {
    const uint32_t value =
        static_cast<uint32_t>(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    c = std::min<uint32_t>(c * (is_hex ? 16 : 10) + value, 0x110000);
  }
  const bool is_none = c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000);
  const bool is_control = (c < 0x20 && c != 9 && c != 10 && c != 12 && c != 13) ||
                          (c >= 0x7F && c < 0xA0) || (c & 0xFFFE) == 0xFFFE ||
                          (c >= 0xFDD0 && c <= 0xFDEF);
  if (is_none) {
    made.append(kReplacement);
  } else if (c == 0xD) {
    made.push_back('\r');
  } else if (c >= 0x80 && c < 0xA0) {
    AppendUtf8(kWindows[c - 0x80], made);
  } else if (!is_control) {
    AppendUtf8(c, made);
  }
}

// Character references to characters.
std::string Unescaped(Run& run, std::string_view text) {
  std::string made;
  while (!text.empty()) {
    const size_t at = text.find('&');
    made.append(text.substr(0, at));
    if (at == std::string_view::npos) break;
    text.remove_prefix(at + 1);
    run.Charge();
    const bool is_hex = text.starts_with("#x") || text.starts_with("#X");
    const size_t first = is_hex ? 2 : text.starts_with('#') ? 1 : 0;
    if (first > 0) {
      const std::string_view kDigits = is_hex ? "0123456789abcdefABCDEF" : "0123456789";
      const size_t end = std::min(text.find_first_not_of(kDigits, first), text.size());
      run.Charge(end);
      if (end == first) {
        made.push_back('&');
        continue;
      }
      AppendNumbered(text.substr(first, end - first), is_hex, made);
      text.remove_prefix(end + (text.substr(end).starts_with(';') ? 1 : 0));
      continue;
    }
    const auto is_word = [](char c) {
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    };
    size_t size = 0;
    while (size < text.size() && size < 32 && is_word(text[size])) ++size;
    const bool has_end = size > 0 && text.substr(size).starts_with(';');
    const std::string_view name = text.substr(0, size);
    uint32_t c = has_end && name == "apos" ? '\'' : CharacterOf(name);
    if (c != 0) {
      AppendUtf8(c, made);
      text.remove_prefix(size + (has_end ? 1 : 0));
      continue;
    }
    if (has_end) {
      run.Refuse("the character reference &" + std::string(name) + ";",
                 "those of Latin-1, amp, lt, gt, quot, apos and numbers");
    }
    made.push_back('&');
    for (size_t part = size; part-- > 2;) {
      if ((c = CharacterOf(text.substr(0, part))) == 0) continue;
      made.pop_back();
      AppendUtf8(c, made);
      text.remove_prefix(part);
      break;
    }
  }
  return made;
}

// Without tags and comments, with single spaces, and without character references.
Value StripTags(Run& run, const Value& value, const Arguments&) {
  const std::string text = TextOf(run, value);
  std::string made;
  std::string_view rest = text;
  for (size_t at = 0; (at = rest.find('<')) != std::string_view::npos;) {
    const bool is_comment = rest.substr(at).starts_with("<!--");
    const size_t end = is_comment ? rest.find("-->", at + 4) : rest.find('>', at);
    run.Charge(std::min(end, rest.size()) - at);
    if (end == std::string_view::npos) break;
    made.append(rest.substr(0, at));
    rest.remove_prefix(end + (is_comment ? 3 : 1));
  }
  made.append(rest);
  std::string spaced;
  bool was_space = false;
  ForEachCharacter(Trimmed(made, true, true), [&](uint32_t c, std::string_view bytes) {
    const bool is_space = IsPythonSpace(c);
    if (!is_space) spaced.append(was_space ? " " : "").append(bytes);
    was_space = is_space;
  });
  return run.Made(Unescaped(run, spaced));
}

std::string Quoted(Run& run, const Value& value, bool is_query) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string made;
  for (const char c : TextOf(run, value)) {
    const bool is_plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (is_plain || (c != 0 && std::string_view("_.-~").find(c) != std::string_view::npos) ||
        (c == '/' && !is_query)) {
      made.push_back(c);
    } else if (c == ' ' && is_query) {
      made.push_back('+');
    } else {
      const auto byte = static_cast<uint8_t>(c);
      made.append({'%', kHex[byte >> 4], kHex[byte & 15]});
    }
  }
  run.Charge(made.size());
  return made;
}

// A text, or the pairs of a dict or a list as a query.
Value UrlEncode(Run& run, const Value& value, const Arguments&) {
  const bool is_list =
      value.AsList() != nullptr || value.AsDict() != nullptr || value.IsUndefined();
  if (!is_list) return run.Made(Quoted(run, value, false));
  List pairs;
  if (const Dict* dict = value.AsDict()) {
    run.ChargeItems(2 * dict->members.size());
    for (const auto& [key, item] : dict->members) pairs.push_back(Value::Of(List{key, item}, true));
  } else {
    pairs = run.Items(value);
  }
  std::string made;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const List pair = run.Items(pairs[i]);
    if (pair.size() != 2) run.Refuse("a part of a query that is no pair", "a name and a value");
    if (i > 0) made.push_back('&');
    made.append(Quoted(run, pair[0], true)).append("=").append(Quoted(run, pair[1], true));
    run.ChargeElement(made.size());
  }
  return run.Made(std::move(made));
}

Value XmlAttributes(Run& run, const Value& value, const Arguments& arguments) {
  if (value.AsDict() == nullptr) {
    run.Refuse("xmlattr of a " + std::string(value.TypeName()), "a dict");
  }
  std::string made;
  const auto part = [&](const Value& of) {
    return of.IsMarkup() ? *of.AsString() : Escaped(TextOf(run, of));
  };
  for (const auto& [key, item] : value.AsDict()->members) {
    if (item.IsNone() || item.IsUndefined()) continue;
    if (key.AsString() == nullptr ||
        key.AsString()->find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      run.Refuse("the name of an attribute", "a string without spaces, /, > and =");
    }
    if (!made.empty()) made.push_back(' ');
    made.append(part(key)).append("=\"").append(part(item)).append("\"");
    run.ChargeElement(made.size());
  }
  if (FlagArgument(arguments, 0, "autospace", true) && !made.empty()) made.insert(0, 1, ' ');
  return run.Made(std::move(made));
}

Value Urlize(Run& run, const Value&, const Arguments&) {
  run.Refuse("the filter urlize", "another filter");
}

}  // namespace

std::span<const FilterRow> HtmlFilters() {
  static constexpr FilterRow kRows[] = {
      {"e", "", Escape},
      {"escape", "", Escape},
      {"forceescape", "", ForceEscape},
      {"safe", "", Safe},
      {"striptags", "", StripTags},
      {"urlencode", "", UrlEncode},
      {"urlize", "*", Urlize},
      {"xmlattr", "autospace?", XmlAttributes},
  };
  return kRows;
}

}  // namespace sluice::text::jinja
