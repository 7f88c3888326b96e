// Python's % of texts.
#include "text/jinja/format/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "text/jinja/format/number_text.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/strings.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

struct Conversion {
  bool is_left = false;
  bool has_sign = false;
  bool has_space = false;
  bool has_zeros = false;
  bool is_alternate = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

class Formatter {
 public:
  Formatter(Run& run, const Value& format, const Value& given)
      : run_(run),
        rest_(*format.AsString()),
        is_markup_(format.IsMarkup()),
        is_own_(jinja::IsOwn(format)),
        given_(given) {
    const bool is_list = given.AsList() != nullptr && !given.IsView(Value::View::kOnce) &&
                         !given.IsView(Value::View::kDict);
    is_mapping_ = given.AsDict() != nullptr || given.IsUndefined() || (is_list && !given.IsTuple());
    if (given.IsTuple()) {
      values_ = given.AsList();
    } else {
      single_ = &given;
    }
  }

  Value Format() {
    while (!rest_.empty()) {
      const size_t at = rest_.find('%');
      Write(rest_.substr(0, at), is_own_);
      if (at == std::string_view::npos) break;
      rest_.remove_prefix(at + 1);
      if (TakeIf('%')) {
        Write("%", is_own_);
      } else {
        Convert();
      }
      run_.ChargeElement(out_.text.size());
    }
    const bool has_more = single_ != nullptr || (values_ != nullptr && next_ < values_->size());
    if (has_more && !is_mapping_) {
      run_.Refuse("more values than the format has", "one for each of its conversions");
    }
    return run_.Made(std::move(out_), is_markup_);
  }

 private:
  void Write(std::string_view text, bool is_own) {
    is_own ? AppendOwn(out_, text) : AppendForeign(out_, text);
  }
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

  // Digits, or a * for the next value.
  int64_t Number() {
    if (TakeIf('*')) {
      const Value& value = Next();
      if (!value.IsInteger() || is_markup_) run_.Refuse("a width that is no integer", "an integer");
      return value.Integer();
    }
    size_t size = 0;
    while (size < rest_.size() && rest_[size] >= '0' && rest_[size] <= '9') ++size;
    int64_t value = 0;
    if (std::from_chars(rest_.data(), rest_.data() + size, value).ec ==
        std::errc::result_out_of_range) {
      run_.Refuse("a larger width", "64 bits");
    }
    rest_.remove_prefix(size);
    return value;
  }

  // (name): the brackets in it have to match. Its value is the next one, and the last.
  void TakeName() {
    size_t size = 0;
    for (int open = 1; open > 0; ++size) {
      if (size == rest_.size()) run_.Refuse("a name without its end in a format", "%(name)s");
      open += rest_[size] == '(' ? 1 : rest_[size] == ')' ? -1 : 0;
    }
    const std::string_view name = rest_.substr(0, size - 1);
    rest_.remove_prefix(size);
    const Value* found = given_.AsDict() == nullptr ? nullptr : given_.AsDict()->Find(run_, name);
    if (found == nullptr) {
      run_.Refuse("the name " + std::string(name) + " of a format", "one of those that are given");
    }
    single_ = found;
    values_ = nullptr;
  }

  const Value& Next() {
    if (single_ != nullptr) return Seen(*std::exchange(single_, nullptr));
    if (values_ == nullptr || next_ == values_->size()) {
      run_.Refuse("fewer values than the format has", "one for each of its conversions");
    }
    return Seen((*values_)[next_++]);
  }
  // Each conversion writes the value that was seen last.
  const Value& Seen(const Value& value) {
    value_is_own_ = jinja::IsOwn(value);
    return value;
  }

  void Convert() {
    Conversion made;
    if (TakeIf('(')) TakeName();
    for (;;) {
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
        break;
      }
    }
    made.width = Number();
    if (made.width < 0) {
      if (made.width == INT64_MIN) run_.Refuse("a larger width", "64 bits");
      made.is_left = true;
      made.width = -made.width;
    }
    if (TakeIf('.')) made.precision = std::max<int64_t>(Number(), 0);
    if (!TakeIf('h') && !TakeIf('l')) TakeIf('L');
    made.type = Take();
    Append(made);
  }

  void Append(const Conversion& conversion) {
    if (std::string_view("srac").find(conversion.type) != std::string_view::npos) {
      return Text(conversion, TextOf(conversion.type, Next()));
    }
    if (std::string_view("diuxXo").find(conversion.type) != std::string_view::npos) {
      return Whole(conversion, Next());
    }
    if (std::string_view("eEfFgG").find(conversion.type) != std::string_view::npos) {
      return Real(conversion, Next());
    }
    run_.Refuse(static_cast<uint8_t>(conversion.type) < 0x80
                    ? std::string("the conversion %").append(1, conversion.type)
                    : std::string("a conversion that is no letter of ASCII"),
                "%s, %r, %a, %c, %d, %i, %u, %x, %o, %e, %f, %g or %%");
  }

  std::string TextOf(char type, const Value& value) {
    if (type == 'c') {
      std::string one;
      const bool is_whole = value.IsInteger() && !is_markup_;
      const int64_t c = is_whole ? value.Integer() : -1;
      if (c >= 0 && c < 0x110000 && (c < 0xD800 || c >= 0xE000)) {
        AppendUtf8(static_cast<uint32_t>(c), one);
      } else if (value.AsString() != nullptr && !is_markup_ &&
                 CountCharacters(*value.AsString()) == 1) {
        one = *value.AsString();
      } else {
        run_.Refuse("%c of a " + std::string(value.TypeName()), "one character");
      }
      return one;
    }
    std::string text = type == 's' ? ToText(run_, value) : ReprText(run_, value);
    run_.Charge(text.size());
    if (is_markup_ && (type != 's' || !value.IsMarkup())) text = Escaped(text);
    return type == 'a' ? AsciiText(text) : text;
  }

  void Text(const Conversion& conversion, std::string text) {
    run_.Charge(text.size());
    if (conversion.precision >= 0 && conversion.type != 'c') {
      text = CharactersFrom(text, 0, static_cast<size_t>(conversion.precision));
    }
    Pad(conversion, "", text, false);
  }

  void Whole(const Conversion& conversion, const Value& value) {
    const bool is_decimal = std::string_view("diu").find(conversion.type) != std::string_view::npos;
    if (!value.IsNumber() || (!is_decimal && (!value.IsInteger() || is_markup_))) {
      run_.Refuse("a number of a " + std::string(value.TypeName()), "a number");
    }
    if (!value.IsInteger() && !(std::abs(value.Real()) < 0x1p63)) {
      run_.Refuse("a larger number", "64 bits");
    }
    const int64_t whole = value.IsInteger() ? value.Integer() : static_cast<int64_t>(value.Real());
    const bool is_hex = conversion.type == 'x' || conversion.type == 'X';
    const int base = is_hex ? 16 : conversion.type == 'o' ? 8 : 10;
    const uint64_t size =
        whole < 0 ? 0 - static_cast<uint64_t>(whole) : static_cast<uint64_t>(whole);
    std::array<char, 72> buffer;
    const std::string digits(buffer.data(),
                             std::to_chars(buffer.begin(), buffer.end(), size, base).ptr);
    std::string all;
    run_.AppendTimes("0", conversion.precision - static_cast<int64_t>(digits.size()), all);
    all.append(digits);
    std::string sign = SignOf(conversion, whole < 0);
    if (conversion.is_alternate && base != 10) sign.append(is_hex ? "0x" : "0o");
    if (conversion.type == 'X') RaiseLetters(sign), RaiseLetters(all);
    Pad(conversion, sign, all, conversion.has_zeros);
  }

  void Real(const Conversion& conversion, const Value& value) {
    if (!value.IsNumber()) {
      run_.Refuse("a number of a " + std::string(value.TypeName()), "a number");
    }
    const int64_t precision = conversion.precision < 0 ? 6 : conversion.precision;
    run_.Charge(static_cast<size_t>(precision));
    std::string digits = RealText(value.Real(), conversion.type, static_cast<int>(precision),
                                  conversion.is_alternate, false);
    const bool is_negative = digits.starts_with('-');
    if (is_negative) digits.erase(0, 1);
    Pad(conversion, SignOf(conversion, is_negative), digits, conversion.has_zeros);
  }

  static std::string SignOf(const Conversion& conversion, bool is_negative) {
    return is_negative ? "-" : conversion.has_sign ? "+" : conversion.has_space ? " " : "";
  }

  void Pad(const Conversion& conversion, const std::string& sign, const std::string& text,
           bool with_zeros) {
    const auto size = static_cast<int64_t>(sign.size() + CountCharacters(text));
    const int64_t room = std::max<int64_t>(conversion.width - size, 0);
    const bool has_zeros = with_zeros && !conversion.is_left;
    std::string made;
    if (!conversion.is_left && !has_zeros) run_.AppendTimes(" ", room, made);
    made.append(sign);
    if (has_zeros) run_.AppendTimes("0", room, made);
    made.append(text);
    if (conversion.is_left) run_.AppendTimes(" ", room, made);
    Write(made, value_is_own_);
  }

  Run& run_;
  std::string_view rest_;
  bool is_markup_;
  bool is_own_;  // the format
  bool value_is_own_ = false;
  const Value& given_;
  bool is_mapping_;
  const List* values_ = nullptr;   // of a tuple
  const Value* single_ = nullptr;  // the one that is left, where they are no tuple
  size_t next_ = 0;
  ChatText out_;
};

}  // namespace

Value Formatted(Run& run, const Value& format, const Value& given) {
  return Formatter(run, format, given).Format();
}

}  // namespace sluice::text::jinja
