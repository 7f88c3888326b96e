// Python's format(value, spec): [[fill]align][sign][z][#][0][width][, or _][.precision][type].
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/format/format.h"
#include "text/jinja/format/number_text.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

struct Spec {
  std::string fill = " ";
  char align = 0;
  char sign = '-';
  bool has_sign = false;
  bool has_zero = false;  // z: no -0
  bool is_alternate = false;
  int64_t width = -1;
  char separator = 0;
  int64_t precision = -1;
  char type = 0;
};

// What stands between the sign and what fills the width.
struct Parts {
  std::string sign;    // with 0x and the like
  std::string digits;  // before the point
  std::string rest;    // the point and what follows
};

class ValueFormatter {
 public:
  ValueFormatter(Run& run, const Value& value, std::string_view spec) : run_(run), value_(value) {
    is_text_ = value.AsString() != nullptr;
    Parse(spec);
  }

  std::string Format() {
    if (is_text_) return FormatText();
    const bool is_real = value_.As<double>() != nullptr;
    const std::string_view of_reals = "eEfFgGn%";
    if (is_real ? spec_.type == 0 || Has(of_reals) : spec_.type != 'n' && Has(of_reals)) {
      return FormatReal();
    }
    if (!is_real && (spec_.type == 0 || Has("bcdoxXn"))) return FormatWhole();
    run_.Refuse(std::string("the type ").append(1, spec_.type) + " of a format of a " +
                    std::string(value_.TypeName()),
                is_real ? "e, f, g, n or %" : "b, c, d, o, x, n, e, f, g or %");
  }

 private:
  bool Has(std::string_view types) const {
    return spec_.type != 0 && types.find(spec_.type) != std::string_view::npos;
  }

  int64_t Number(std::string_view& rest) const {
    size_t size = 0;
    while (size < rest.size() && rest[size] >= '0' && rest[size] <= '9') ++size;
    int64_t value = -1;
    if (std::from_chars(rest.data(), rest.data() + size, value).ec ==
        std::errc::result_out_of_range) {
      run_.Refuse("a larger number in a format", "64 bits");
    }
    rest.remove_prefix(size);
    return value;
  }

  void Parse(std::string_view spec) {
    std::string_view rest = spec;
    const auto is_align = [](std::string_view text) {
      return !text.empty() && std::string_view("<>=^").find(text[0]) != std::string_view::npos;
    };
    const auto take = [&](char c) {
      if (!rest.starts_with(c)) return false;
      rest.remove_prefix(1);
      return true;
    };
    bool has_fill = false;
    const size_t first = rest.empty() ? 0 : FirstOf(rest).size;
    if (first > 0 && is_align(rest.substr(first))) {
      spec_.fill = rest.substr(0, first);
      spec_.align = rest[first];
      has_fill = true;
      rest.remove_prefix(first + 1);
    } else if (is_align(rest)) {
      spec_.align = rest[0];
      rest.remove_prefix(1);
    }
    if (rest.starts_with('+') || rest.starts_with('-') || rest.starts_with(' ')) {
      spec_.has_sign = true;
      spec_.sign = rest[0];
      rest.remove_prefix(1);
    }
    spec_.has_zero = take('z');
    spec_.is_alternate = take('#');
    if (!has_fill && take('0')) {
      spec_.fill = "0";
      if (spec_.align == 0 && !is_text_) spec_.align = '=';
    }
    spec_.width = Number(rest);
    if (take(',')) spec_.separator = ',';
    if (rest.starts_with('_') && spec_.separator != 0) Refuse(spec);
    if (take('_')) spec_.separator = '_';
    if (rest.starts_with(',') && spec_.separator != 0) Refuse(spec);
    if (take('.') && (spec_.precision = Number(rest)) < 0) Refuse(spec);
    if (!rest.empty()) {
      if (static_cast<uint8_t>(rest[0]) >= 0x80 || rest.size() > 1) Refuse(spec);
      spec_.type = rest[0];
    }
    const bool groups =
        spec_.type == 0 ? !is_text_ : Has("defgEG%F") || (spec_.separator == '_' && Has("boxX"));
    if (spec_.separator != 0 && !groups) Refuse(spec);
    if (is_text_ && (spec_.has_sign || spec_.has_zero || spec_.is_alternate || spec_.align == '=' ||
                     (spec_.type != 0 && spec_.type != 's'))) {
      Refuse(spec);
    }
    if (spec_.align == 0) spec_.align = is_text_ ? '<' : '>';
  }

  [[noreturn]] void Refuse(std::string_view spec) const {
    run_.Refuse("the format \"" + std::string(spec) + "\" of a " + std::string(value_.TypeName()),
                "[[fill]align][sign][#][0][width][grouping][.precision][type]");
  }

  std::string FormatText() {
    std::string_view text = *value_.AsString();
    run_.Charge(text.size());
    if (spec_.precision >= 0) text = CharactersFrom(text, 0, static_cast<size_t>(spec_.precision));
    return Padded({"", "", std::string(text)});
  }

  std::string FormatWhole() {
    if (spec_.precision >= 0 || spec_.has_zero) {
      run_.Refuse("a precision or z in a format of a whole number", "neither");
    }
    const int64_t value = value_.Integer();
    if (spec_.type == 'c') {
      const bool is_character =
          value >= 0 && value < 0x110000 && (value < 0xD800 || value >= 0xE000);
      if (spec_.has_sign || spec_.is_alternate || !is_character) {
        run_.Refuse("a format of " + std::to_string(value) + " as a character",
                    "a character, without sign and #");
      }
      std::string character;
      AppendUtf8(static_cast<uint32_t>(value), character);
      return Padded({"", "", std::move(character)});
    }
    const bool is_hex = spec_.type == 'x' || spec_.type == 'X';
    const int base = is_hex ? 16 : spec_.type == 'o' ? 8 : spec_.type == 'b' ? 2 : 10;
    const uint64_t size =
        value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    std::array<char, 72> buffer;
    std::string digits(buffer.data(), std::to_chars(buffer.begin(), buffer.end(), size, base).ptr);
    std::string sign = SignOf(value < 0);
    if (spec_.is_alternate && base != 10) sign.append("0").append(1, is_hex ? 'x' : spec_.type);
    if (spec_.type == 'X') RaiseLetters(sign), RaiseLetters(digits);
    return Padded({std::move(sign), std::move(digits), ""});
  }

  std::string FormatReal() {
    double value = value_.Real();
    const bool is_percent = spec_.type == '%';
    if (is_percent) value *= 100;
    char type = is_percent ? 'f' : spec_.type == 'n' ? 'g' : spec_.type;
    const bool adds_zero = type == 0;
    if (adds_zero) type = spec_.precision < 0 ? 'r' : 'g';
    run_.Charge(spec_.precision < 0 ? 6 : static_cast<size_t>(spec_.precision));
    const int precision = spec_.precision < 0 ? 6 : static_cast<int>(spec_.precision);
    std::string text = RealText(value, type, precision, spec_.is_alternate, adds_zero);
    if (is_percent) text.push_back('%');
    bool is_negative = text.starts_with('-');
    if (is_negative) text.erase(0, 1);
    if (spec_.has_zero && std::isfinite(value) &&
        text.find_first_of("123456789") == std::string::npos) {
      is_negative = false;
    }
    const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    return Padded({SignOf(is_negative), text.substr(0, digits), text.substr(digits)});
  }

  std::string SignOf(bool is_negative) const {
    if (is_negative) return "-";
    return spec_.sign == '-' ? "" : std::string(1, spec_.sign);
  }

  // Digits in groups, with zeros before them up to a width.
  std::string Grouped(std::string_view digits, int64_t width) {
    const int64_t size = spec_.separator == ',' || Has("defgEG%F") || spec_.type == 0 ? 3 : 4;
    std::string made;  // from the end
    auto left = static_cast<int64_t>(digits.size());
    if (width > 0) run_.Charge(static_cast<size_t>(width));
    if (spec_.separator == 0) {
      run_.AppendTimes("0", width - left, made);
      return made.append(digits);
    }
    while (left > 0 || width > 0) {
      if (!made.empty()) {
        made.push_back(spec_.separator);
        --width;
      }
      const int64_t count = std::min(size, std::max<int64_t>({left, width, 1}));
      for (int64_t i = 0; i < count; ++i) {
        made.push_back(left > 0 ? digits[static_cast<size_t>(--left)] : '0');
      }
      width -= count;
    }
    std::reverse(made.begin(), made.end());
    return made;
  }

  std::string Padded(Parts parts) {
    const auto around = static_cast<int64_t>(parts.sign.size() + CountCharacters(parts.rest));
    const bool has_zeros = spec_.fill == "0" && spec_.align == '=';
    if (!parts.digits.empty()) {
      parts.digits = Grouped(parts.digits, has_zeros ? spec_.width - around : 0);
    }
    const int64_t room =
        std::max<int64_t>(0, spec_.width - around - static_cast<int64_t>(parts.digits.size()));
    const int64_t before = spec_.align == '>' ? room : spec_.align == '^' ? room / 2 : 0;
    std::string made;
    run_.AppendTimes(spec_.fill, before, made);
    made.append(parts.sign);
    if (spec_.align == '=') run_.AppendTimes(spec_.fill, room, made);
    made.append(parts.digits).append(parts.rest);
    if (spec_.align != '=') run_.AppendTimes(spec_.fill, room - before, made);
    return made;
  }

  Run& run_;
  const Value& value_;
  bool is_text_;
  Spec spec_;
};

}  // namespace

std::string FormattedValue(Run& run, const Value& value, std::string_view spec) {
  if (spec.empty()) return ToText(run, value);
  if (value.AsString() == nullptr && !value.IsNumber()) {
    run.Refuse("a format of a " + std::string(value.TypeName()), "that of a string or a number");
  }
  return ValueFormatter(run, value, spec).Format();
}

}  // namespace sluice::text::jinja
