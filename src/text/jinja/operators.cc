// What operators, subscripts and loops do with values.
#include <algorithm>
#include <cmath>

#include "support/check.h"
#include "text/jinja/find.h"
#include "text/jinja/format/format.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/run.h"
#include "text/jinja/strings.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {
namespace {

std::string Names(const Value& left, const Value& right) {
  return std::string(left.TypeName()).append(" and ").append(right.TypeName());
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

bool IsPlainList(const Value& value) {
  return value.AsList() != nullptr && value.IsView(Value::View::kNone);
}

Value Repeated(Run& run, const Value& of, int64_t count) {
  count = std::max<int64_t>(count, 0);
  if (const std::string* text = of.AsString()) {
    const auto total = static_cast<double>(text->size()) * static_cast<double>(count);
    run.Charge(static_cast<size_t>(std::min(total, 1e18)));
    std::string made;
    for (int64_t i = 0; i < (text->empty() ? 0 : count); ++i) made.append(*text);
    return OwnIf(IsOwn(of), Value::Text(std::move(made), of.IsMarkup()));
  }
  List made;
  for (int64_t i = 0; i < (of.AsList()->empty() ? 0 : count); ++i) {
    for (const Value& item : *of.AsList()) {
      run.Charge();
      made.push_back(item);
    }
  }
  return Value::Of(std::move(made), of.IsTuple());
}

// A sum of texts of which one is Markup: the other is escaped.
Value Joined(Run& run, const Value& left, const Value& right) {
  ChatText made;
  for (const Value* value : {&left, &right}) {
    run.Charge(value->AsString()->size());
    if (value->IsMarkup()) {
      AppendValue(run, *value, made);
    } else if (IsOwn(*value)) {
      AppendOwn(made, Escaped(*value->AsString()));
    } else {
      AppendForeign(made, Escaped(*value->AsString()));
    }
  }
  return run.Made(std::move(made), true);
}

// Python's: the rest has the sign of the divisor, and is exact.
struct Division {
  double quotient;
  double rest;
};
Division Divide(double a, double b) {
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest == 0.0) {
    rest = std::copysign(0.0, b);
  } else if ((b < 0.0) != (rest < 0.0)) {
    rest += b;
    quotient -= 1.0;
  }
  if (quotient == 0.0) return {std::copysign(0.0, a / b), rest};
  const double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1.0 : whole, rest};
}

// Of whole numbers; false when the result needs more than 64 bits, or is no whole number.
bool Whole(std::string_view name, int64_t a, int64_t b, int64_t* result) {
  if (name == "+") return !__builtin_add_overflow(a, b, result);
  if (name == "-") return !__builtin_sub_overflow(a, b, result);
  if (name == "*") return !__builtin_mul_overflow(a, b, result);
  if (name == "//" || name == "%") {
    if (a == INT64_MIN && b == -1) return false;
    const int64_t quotient = FloorDivide(a, b);
    *result = name == "//" ? quotient : a - quotient * b;
    return true;
  }
  if (name == "**" && b >= 0) {
    int64_t power = 1;
    for (int64_t i = 0; i < b && power != 0 && !(power == 1 && i > 0); ++i) {
      if (__builtin_mul_overflow(power, a, &power)) return false;
      if (power == -1 && i > 0) break;
    }
    if (a == -1) power = b % 2 == 0 ? 1 : -1;
    *result = power;
    return true;
  }
  return false;
}

}  // namespace

Value Run::Binary(std::string_view name, const Value& left, const Value& right) {
  const auto joined = [&] {
    ChatText made;
    AppendValue(*this, left, made);
    AppendValue(*this, right, made);
    return Made(std::move(made));
  };
  if (name == "~") return joined();
  if (name == "%" && left.AsString() != nullptr) return Formatted(*this, left, right);
  if (left.IsNumber() && right.IsNumber()) {
    const bool divides = name == "/" || name == "//" || name == "%";
    if (divides && right.Real() == 0.0) Refuse("a division by 0", "another number");
    if (left.IsInteger() && right.IsInteger() && name != "/") {
      int64_t result = 0;
      if (Whole(name, left.Integer(), right.Integer(), &result)) return Value::Of(result);
      if (name != "**" || right.Integer() >= 0) Refuse("a larger number", "64 bits");
    }
    const double a = left.Real();
    const double b = right.Real();
    if (name == "+") return Value::Of(a + b);
    if (name == "-") return Value::Of(a - b);
    if (name == "*") return Value::Of(a * b);
    if (name == "/") return Value::Of(a / b);
    if (name == "//") return Value::Of(Divide(a, b).quotient);
    if (name == "%") return Value::Of(Divide(a, b).rest);
    const double power = std::pow(a, b);
    if (std::isfinite(a) && std::isfinite(b) && !std::isfinite(power)) {
      Refuse("a power that is no real number, or too large", "a number");
    }
    return Value::Of(power);
  }
  if (name == "+") {
    if (left.AsString() != nullptr && right.AsString() != nullptr) {
      if (left.IsMarkup() || right.IsMarkup()) return Joined(*this, left, right);
      return joined();
    }
    if (IsPlainList(left) && IsPlainList(right) && left.IsTuple() == right.IsTuple()) {
      ChargeItems(left.AsList()->size() + right.AsList()->size());
      List made = *left.AsList();
      made.insert(made.end(), right.AsList()->begin(), right.AsList()->end());
      return Value::Of(std::move(made), left.IsTuple());
    }
  }
  const auto repeats = [](const Value& value) {
    return value.AsString() != nullptr || IsPlainList(value);
  };
  if (name == "*" && repeats(left) && right.IsInteger()) {
    return Repeated(*this, left, right.Integer());
  }
  if (name == "*" && repeats(right) && left.IsInteger()) {
    return Repeated(*this, right, left.Integer());
  }
  if (const auto* missing = left.As<Undefined>()) {
    Refuse("\"" + missing->name + "\", which is not defined", "a value");
  }
  if (const auto* missing = right.As<Undefined>()) {
    Refuse("\"" + missing->name + "\", which is not defined", "a value");
  }
  Refuse(std::string(name).append(" of ").append(Names(left, right)), "values that have it");
}

bool IsLess(Run& run, const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.Integer() < b.Integer();
    return a.Real() < b.Real();
  }
  if (a.AsString() != nullptr && b.AsString() != nullptr) {
    run.ChargeCompared(std::min(a.AsString()->size(), b.AsString()->size()));
    return *a.AsString() < *b.AsString();
  }
  if (IsPlainList(a) && IsPlainList(b) && a.IsTuple() == b.IsTuple()) {
    const List& x = *a.AsList();
    const List& y = *b.AsList();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      run.Charge();
      if (!IsEqual(run, x[i], y[i])) return IsLess(run, x[i], y[i]);
    }
    return x.size() < y.size();
  }
  run.Refuse("an order of " + Names(a, b), "numbers, or strings");
}

bool Run::Compare(std::string_view name, const Value& left, const Value& right) {
  if (name == "==") return IsEqual(*this, left, right);
  if (name == "!=") return !IsEqual(*this, left, right);
  if (name == "<") return IsLess(*this, left, right);
  if (name == ">") return IsLess(*this, right, left);
  if (name == "<=") return IsEqual(*this, left, right) || IsLess(*this, left, right);
  if (name == ">=") return IsEqual(*this, left, right) || IsLess(*this, right, left);
  bool is_in = false;
  if (const std::string* text = right.AsString()) {
    if (left.AsString() == nullptr) Refuse("in of " + Names(left, right), "a string");
    Charge(text->size());
    is_in = Finder(*this, *left.AsString()).In(*text) != std::string::npos;
  } else if (List* list = right.AsList()) {
    const size_t place = FindIn(*this, *list, left);
    is_in = place < list->size();
    if (right.IsView(Value::View::kOnce)) {
      list->erase(list->begin(),
                  list->begin() + static_cast<std::ptrdiff_t>(place + (is_in ? 1 : 0)));
    }
  } else if (const Dict* dict = right.AsDict()) {
    CheckKey(left);
    is_in = dict->Find(*this, left) != nullptr;
  } else if (!right.IsUndefined()) {
    Refuse("in of " + Names(left, right), "a list, a dict or a string");
  }
  return is_in == (name == "in");
}

int64_t PlaceOf(int64_t index, size_t size) {
  const auto count = static_cast<int64_t>(size);
  if (index < 0) index += count;
  return index < 0 || index >= count ? -1 : index;
}

Value Run::Item(const Value& value, const Value& key) {
  if (const auto* missing = value.As<Undefined>()) {
    Refuse("a member of \"" + missing->name + "\", which is not defined", "a value");
  }
  if (const Dict* dict = value.AsMembers()) {
    if (const Value* found = dict->Find(*this, key)) return *found;
  }
  if (key.IsInteger()) {
    if (const List* list = value.AsList();
        list != nullptr && !value.IsView(Value::View::kOnce) && !value.IsView(Value::View::kDict)) {
      const int64_t place = PlaceOf(key.Integer(), list->size());
      if (place >= 0) return (*list)[static_cast<size_t>(place)];
    }
    if (const std::string* text = value.AsString()) {
      Charge(text->size());
      const int64_t place = PlaceOf(key.Integer(), CountCharacters(*text));
      if (place >= 0) {
        const auto at = static_cast<size_t>(place);
        return PartOf(value, CharactersFrom(*text, at, at + 1));
      }
    }
    return Value::Missing(ToText(*this, key));
  }
  if (const std::string* name = key.AsString()) return Method(value, *name);
  return Value::Missing(key.TypeName());
}

// A method goes before a member here, and after it in a subscript.
Value Run::Attribute(const Value& value, std::string_view name) {
  if (const auto* missing = value.As<Undefined>()) {
    Refuse("a member of \"" + missing->name + "\", which is not defined", "a value");
  }
  const auto* mapping = value.As<Value::Mapping>();
  if (mapping == nullptr || !mapping->is_namespace) {
    Value method = Method(value, name);
    if (!method.IsUndefined()) return method;
  }
  if (const Dict* dict = value.AsMembers()) {
    if (const Value* found = dict->Find(*this, name)) return *found;
  }
  return Value::Missing(name);
}

List Run::Items(const Value& value) {
  List items;
  if (List* list = value.AsList()) {
    ChargeItems(list->size());
    if (value.IsView(Value::View::kOnce)) {
      items.swap(*list);
    } else {
      items = *list;
    }
  } else if (const Dict* dict = value.AsDict()) {
    ChargeItems(dict->members.size());
    for (const auto& member : dict->members) items.push_back(member.first);
  } else if (const std::string* text = value.AsString()) {
    Charge(text->size());
    ChargeItems(2 * CountCharacters(*text));
    ForEachCharacter(*text, [&](uint32_t, std::string_view bytes) {
      ChatText item;
      AppendPart(item, value, bytes);
      items.push_back(Value::Of(std::move(item)));
    });
  } else if (!value.IsUndefined()) {
    Refuse("a loop over a " + std::string(value.TypeName()), "a list, a dict or a string");
  }
  return items;
}

}  // namespace sluice::text::jinja
