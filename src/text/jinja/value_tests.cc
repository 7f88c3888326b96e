// What stands behind "is".
#include "text/jinja/run.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {

bool Run::Test(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
  const auto other = [&]() -> const Value& {
    if (arguments.positional.empty()) Refuse("is " + std::string(name) + " without a value", "one");
    return arguments.positional[0];
  };
  if (name == "defined") return !value.IsUndefined();
  if (name == "undefined") return value.IsUndefined();
  if (name == "none") return value.IsNone();
  if (name == "string") return value.AsString() != nullptr;
  if (name == "mapping") return value.AsDict() != nullptr;
  if (name == "number") return value.IsNumber();
  if (name == "integer") return value.As<int64_t>() != nullptr;
  if (name == "float") return value.As<double>() != nullptr;
  if (name == "boolean") return value.As<bool>() != nullptr;
  if (name == "true") return value.As<bool>() != nullptr && value.IsTrue();
  if (name == "false") return value.As<bool>() != nullptr && !value.IsTrue();
  if (name == "callable") {
    return value.IsUndefined() || value.As<std::shared_ptr<const Function>>() != nullptr;
  }
  if (name == "sequence" && value.IsView(Value::View::kOnce)) return false;
  if (name == "iterable" || name == "sequence") {
    return value.AsString() != nullptr || value.AsList() != nullptr || value.AsDict() != nullptr ||
           value.IsUndefined();
  }
  if (name == "even" || name == "odd" || name == "divisibleby") {
    const Value by = name == "divisibleby" ? other() : Value::Of(int64_t{2});
    const Value rest = Binary("%", value, by);
    return rest.Real() == (name == "odd" ? 1.0 : 0.0);
  }
  if (name == "in") return Compare("in", value, other());
  if (name == "eq" || name == "equalto" || name == "==") return Compare("==", value, other());
  if (name == "ne" || name == "!=") return Compare("!=", value, other());
  if (name == "lt" || name == "lessthan" || name == "<") return Compare("<", value, other());
  if (name == "gt" || name == "greaterthan" || name == ">") return Compare(">", value, other());
  if (name == "le" || name == "<=") return Compare("<=", value, other());
  if (name == "ge" || name == ">=") return Compare(">=", value, other());
  if (name == "upper" || name == "lower") {
    const std::string text = ToText(*this, value);
    Charge(text.size());
    return HasOnlyCase(text, name == "upper");
  }
  if (name == "sameas") {
    if (value.AsList() != nullptr) return value.AsList() == other().AsList();
    if (value.AsMembers() != nullptr) return value.AsMembers() == other().AsMembers();
    return value.TypeName() == other().TypeName() && Compare("==", value, other());
  }
  Refuse("the test " + std::string(name), "one of the usual tests");
}

}  // namespace sluice::text::jinja
