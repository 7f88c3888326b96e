#include "text/jinja/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

constexpr int64_t kWidest = 1024;

struct Conversion {
  std::string name;
  bool is_named = false;
  bool is_left = false;
  bool has_sign = false;
  bool has_space = false;
  bool has_zeros = false;
  bool is_alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
  bool is_plain = false;  // nothing but a type
};

class Formatter {
 public:
  Formatter(Run& run, std::string_view format, const Arguments& arguments)
      : run_(run), rest_(format), arguments_(arguments) {
    if (arguments.named.empty() && arguments.positional.size() == 1) {
      mapping_ = arguments.positional[0].AsDict();
    }
  }

  Value Format() {
    while (!rest_.empty()) {
      const size_t at = rest_.find('%');
      out_.append(rest_.substr(0, at));
      if (at == std::string_view::npos) break;
      rest_.remove_prefix(at + 1);
      Convert(Read());
      run_.ChargeElement(out_.size());
    }
    if (!was_named_ && mapping_ == nullptr && next_ < arguments_.positional.size()) {
      run_.Refuse("more values than the format has", "one for each of its conversions");
    }
    return run_.Made(std::move(out_));
  }

 private:
  char Take() {
    if (rest_.empty()) run_.Refuse("a format that ends in a conversion", "its type");
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }
  bool TakeIf(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  int64_t Number() {
    int64_t value = 0;
    for (; !rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9'; rest_.remove_prefix(1)) {
      value = value * 10 + (rest_[0] - '0');
      if (value > kWidest) run_.Refuse("a wider conversion", "at most 1024");
    }
    return value;
  }

  Conversion Read() {
    Conversion made;
    const size_t size = rest_.size();
    if (TakeIf('(')) {
      const size_t end = rest_.find(')');
      if (end == std::string_view::npos)
        run_.Refuse("a name without its end in a format", "%(name)s");
      made.name = rest_.substr(0, end);
      made.is_named = true;
      rest_.remove_prefix(end + 1);
    }
    for (bool is_flag = true; is_flag;) {
      is_flag = true;
      if (TakeIf('-')) {
        made.is_left = true;
      } else if (TakeIf('+')) {
        made.has_sign = true;
      } else if (TakeIf(' ')) {
        made.has_space = true;
      } else if (TakeIf('0')) {
        made.has_zeros = true;
      } else if (TakeIf('#')) {
        made.is_alternate = true;
      } else {
        is_flag = false;
      }
    }
    made.width = Number();
    if (TakeIf('.')) made.precision = Number();
    made.is_plain = rest_.size() == size;
    made.type = Take();
    return made;
  }

  const Value& Argument(const Conversion& conversion) {
    if (conversion.is_named) {
      was_named_ = true;
      if (mapping_ != nullptr) {
        if (const Value* found = mapping_->Find(run_, conversion.name)) return *found;
      }
      if (const Value* found = arguments_.Get(SIZE_MAX, conversion.name)) return *found;
      run_.Refuse("the name " + conversion.name + " of a format", "one of those that are given");
    }
    if (next_ == arguments_.positional.size()) {
      run_.Refuse("fewer values than the format has", "one for each of its conversions");
    }
    return arguments_.positional[next_++];
  }

  void Convert(const Conversion& conversion) {
    if (conversion.type == '%' && conversion.is_plain) {
      out_.push_back('%');
      return;
    }
    switch (conversion.type) {
      case 's':
        return Text(conversion, ToText(run_, Argument(conversion)));
      case 'r': {
        const std::string list = ToText(run_, Value::Of(List{Argument(conversion)}));
        return Text(conversion, list.substr(1, list.size() - 2));
      }
      case 'c': {
        const Value& value = Argument(conversion);
        std::string one;
        if (value.IsInteger() && value.Integer() >= 0 && value.Integer() < 0x110000 &&
            (value.Integer() < 0xD800 || value.Integer() >= 0xE000)) {
          AppendUtf8(static_cast<uint32_t>(value.Integer()), one);
        } else if (value.AsString() != nullptr && CountCharacters(*value.AsString()) == 1) {
          one = *value.AsString();
        } else {
          run_.Refuse("%c of a " + std::string(value.TypeName()), "one character");
        }
        return Text(conversion, std::move(one));
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return Whole(conversion, Argument(conversion));
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return Real(conversion, Argument(conversion));
      default:
        run_.Refuse(std::string("the conversion %").append(1, conversion.type),
                    "%s, %r, %c, %d, %i, %u, %x, %o, %e, %f, %g or %%");
    }
  }

  void Text(const Conversion& conversion, std::string text) {
    run_.Charge(text.size());
    if (conversion.precision >= 0) {
      text = CharactersFrom(text, 0, static_cast<size_t>(conversion.precision));
    }
    Pad(conversion, "", text, false);
  }

  void Whole(const Conversion& conversion, const Value& value) {
    if (!value.IsNumber() ||
        (!value.IsInteger() && conversion.type >= 'o' && conversion.type != 'u')) {
      run_.Refuse("a number of a " + std::string(value.TypeName()), "a number");
    }
    if (!value.IsInteger() && !(std::abs(value.Real()) < 0x1p63)) {
      run_.Refuse("a larger number", "64 bits");
    }
    const int64_t whole = value.IsInteger() ? value.Integer() : static_cast<int64_t>(value.Real());
    const bool is_hex = conversion.type == 'x' || conversion.type == 'X';
    const int base = is_hex ? 16 : conversion.type == 'o' ? 8 : 10;
    const uint64_t size = whole < 0 ? -static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
    std::array<char, 72> buffer;
    std::string digits(buffer.data(), std::to_chars(buffer.begin(), buffer.end(), size, base).ptr);
    if (static_cast<int64_t>(digits.size()) < conversion.precision) {
      digits.insert(0, static_cast<size_t>(conversion.precision) - digits.size(), '0');
    }
    std::string sign = SignOf(conversion, whole < 0);
    if (conversion.is_alternate && base != 10) sign.append(is_hex ? "0x" : "0o");
    if (conversion.type == 'X') Raise(sign), Raise(digits);
    Pad(conversion, sign, digits, conversion.has_zeros);
  }

  void Real(const Conversion& conversion, const Value& value) {
    if (!value.IsNumber() || conversion.is_alternate) {
      run_.Refuse("a number of a " + std::string(value.TypeName()), "a number, without #");
    }
    const double real = value.Real();
    const char type = static_cast<char>(conversion.type | 0x20);
    int precision = conversion.precision < 0 ? 6 : static_cast<int>(conversion.precision);
    if (type == 'g' && precision == 0) precision = 1;
    std::string digits = std::isnan(real) ? "nan" : "inf";
    if (std::isfinite(real)) {
      const auto format = type == 'f'   ? std::chars_format::fixed
                          : type == 'e' ? std::chars_format::scientific
                                        : std::chars_format::general;
      digits.resize(400 + static_cast<size_t>(precision));
      digits.resize(static_cast<size_t>(std::to_chars(digits.data(), digits.data() + digits.size(),
                                                      std::abs(real), format, precision)
                                            .ptr -
                                        digits.data()));
    }
    if (conversion.type != type) Raise(digits);
    Pad(conversion, SignOf(conversion, std::signbit(real) && !std::isnan(real)), digits,
        conversion.has_zeros);
  }

  static void Raise(std::string& text) {
    for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c & ~0x20) : c;
  }
  static std::string SignOf(const Conversion& conversion, bool is_negative) {
    return is_negative ? "-" : conversion.has_sign ? "+" : conversion.has_space ? " " : "";
  }

  void Pad(const Conversion& conversion, const std::string& sign, const std::string& text,
           bool with_zeros) {
    const auto size = static_cast<int64_t>(sign.size() + CountCharacters(text));
    const auto room = static_cast<size_t>(std::max<int64_t>(conversion.width - size, 0));
    const bool has_zeros = with_zeros && !conversion.is_left;
    if (!conversion.is_left && !has_zeros) out_.append(room, ' ');
    out_.append(sign);
    if (has_zeros) out_.append(room, '0');
    out_.append(text);
    if (conversion.is_left) out_.append(room, ' ');
  }

  Run& run_;
  std::string_view rest_;
  const Arguments& arguments_;
  const Dict* mapping_ = nullptr;
  size_t next_ = 0;
  bool was_named_ = false;
  std::string out_;
};

}  // namespace

Value Formatted(Run& run, const std::string& format, const Arguments& arguments) {
  return Formatter(run, format, arguments).Format();
}

}  // namespace sluice::text::jinja
