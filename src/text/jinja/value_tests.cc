// What stands after "is".
#include <algorithm>

#include "text/jinja/run.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {
namespace {

struct TestRow {
  std::string_view name;
  std::string_view parameters;
  bool (*call)(Run& run, const Value& value, const Arguments& arguments);
};

// The argument of a test that takes one, which has been checked.
const Value& Other(const Arguments& arguments, std::string_view name) {
  return *arguments.Get(0, name);
}

bool HasRest(Run& run, const Value& value, const Value& by, double expected) {
  const Value rest = run.Binary("%", value, by);
  return rest.IsNumber() && rest.Real() == expected;
}

bool IsOdd(Run& run, const Value& value, const Arguments&) {
  return HasRest(run, value, Value::Of(int64_t{2}), 1.0);
}

bool IsEven(Run& run, const Value& value, const Arguments&) {
  return HasRest(run, value, Value::Of(int64_t{2}), 0.0);
}

bool IsDivisible(Run& run, const Value& value, const Arguments& arguments) {
  return HasRest(run, value, Other(arguments, "num"), 0.0);
}

bool IsCallable(Run&, const Value& value, const Arguments&) {
  return value.IsUndefined() || value.As<std::shared_ptr<const Function>>() != nullptr;
}

bool IsIterable(Run&, const Value& value, const Arguments&) {
  return value.AsString() != nullptr || value.AsList() != nullptr || value.AsDict() != nullptr ||
         value.IsUndefined();
}

bool IsSequence(Run& run, const Value& value, const Arguments& arguments) {
  return IsIterable(run, value, arguments) && !value.IsView(Value::View::kOnce) &&
         !value.IsView(Value::View::kDict);
}

template <bool kUpper>
bool HasCase(Run& run, const Value& value, const Arguments&) {
  const std::string text = ToText(run, value);
  run.Charge(text.size());
  return HasOnlyCase(text, kUpper);
}

bool IsSame(Run& run, const Value& value, const Arguments& arguments) {
  const Value& other = Other(arguments, "other");
  if (value.AsList() != nullptr) return value.AsList() == other.AsList();
  if (value.AsMembers() != nullptr) return value.AsMembers() == other.AsMembers();
  return value.TypeName() == other.TypeName() && run.Compare("==", value, other);
}

template <typename T>
bool IsA(Run&, const Value& value, const Arguments&) {
  return value.As<T>() != nullptr;
}

bool IsDefined(Run&, const Value& value, const Arguments&) { return !value.IsUndefined(); }
bool IsString(Run&, const Value& value, const Arguments&) { return value.AsString() != nullptr; }
bool IsEscaped(Run&, const Value& value, const Arguments&) { return value.IsMarkup(); }
bool IsMapping(Run&, const Value& value, const Arguments&) { return value.AsDict() != nullptr; }
bool IsNumberTest(Run&, const Value& value, const Arguments&) { return value.IsNumber(); }
bool IsTrueTest(Run&, const Value& value, const Arguments&) {
  return value.As<bool>() != nullptr && value.IsTrue();
}
bool IsFalseTest(Run&, const Value& value, const Arguments&) {
  return value.As<bool>() != nullptr && !value.IsTrue();
}

// Whether a value is the name of a filter or of a test.
template <bool (*kIs)(std::string_view)>
bool IsName(Run& run, const Value& value, const Arguments&) {
  run.CheckKey(value);
  return value.AsString() != nullptr && kIs(*value.AsString());
}

// The operators go by their names and by several words.
std::string_view OperatorOf(std::string_view name) {
  constexpr std::string_view kWords[][2] = {
      {"==", "=="}, {"eq", "=="}, {"equalto", "=="},    {"!=", "!="}, {"ne", "!="},
      {">", ">"},   {"gt", ">"},  {"greaterthan", ">"}, {">=", ">="}, {"ge", ">="},
      {"<", "<"},   {"lt", "<"},  {"lessthan", "<"},    {"<=", "<="}, {"le", "<="}};
  for (const auto& words : kWords) {
    if (words[0] == name) return words[1];
  }
  return {};
}

constexpr TestRow kRows[] = {
    {"boolean", "", IsA<bool>},   {"callable", "", IsCallable},
    {"defined", "", IsDefined},   {"divisibleby", "num", IsDivisible},
    {"escaped", "", IsEscaped},   {"even", "", IsEven},
    {"false", "", IsFalseTest},   {"filter", "", IsName<IsFilter>},
    {"float", "", IsA<double>},   {"integer", "", IsA<int64_t>},
    {"iterable", "", IsIterable}, {"lower", "", HasCase<false>},
    {"mapping", "", IsMapping},   {"none", "", IsA<None>},
    {"number", "", IsNumberTest}, {"odd", "", IsOdd},
    {"sameas", "other", IsSame},  {"sequence", "", IsSequence},
    {"string", "", IsString},     {"test", "", IsName<IsTest>},
    {"true", "", IsTrueTest},     {"undefined", "", IsA<Undefined>},
    {"upper", "", HasCase<true>},
};

const TestRow* FindTest(std::string_view name) {
  const auto found = std::find_if(std::begin(kRows), std::end(kRows),
                                  [&](const TestRow& row) { return row.name == name; });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

bool IsTest(std::string_view name) {
  return name == "in" || !OperatorOf(name).empty() || FindTest(name) != nullptr;
}

bool Run::Test(std::string_view name, const Value& value, const Arguments& arguments) {
  Charge();
  if (const std::string_view compared = OperatorOf(name); !compared.empty()) {
    CheckArguments(name, "/b", arguments);
    return Compare(compared, value, Other(arguments, "b"));
  }
  if (name == "in") {
    CheckArguments(name, "seq", arguments);
    return Compare("in", value, Other(arguments, "seq"));
  }
  const TestRow* row = FindTest(name);
  if (row == nullptr) Refuse("the test " + std::string(name), "one of the usual tests");
  CheckArguments(name, row->parameters, arguments);
  return row->call(*this, value, arguments);
}

}  // namespace sluice::text::jinja
