#include "text/jinja/run.h"

#include <algorithm>
#include <cmath>

#include "support/check.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/syntax/level.h"
#include "text/jinja/syntax/lexer.h"
#include "text/normalize/utf8.h"

namespace sluice::text::jinja {

using Node = Expression::Kind;
using Tag = Statement::Kind;

const Value* Scope::Find(std::string_view name, size_t* passed) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->outer.get()) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
    *passed += scope->names.size() + 1;
  }
  return nullptr;
}

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  names.emplace_back(name, std::move(value));
}

namespace {

// To a macro that a namespace has carried out, the names of a loop or a `with` that has ended are
// what Jinja's compiler sets them to, an object of that name.
void EndOf(Scope& scope, bool has_macros) {
  if (!has_macros) return;
  for (auto& [name, value] : scope.names) value = Value::Of(std::string("missing"));
}

}  // namespace

Run::~Run() {
  // All of them are held here, so that none takes another along, which could go deep.
  for (const std::shared_ptr<Scope>& scope : closures_) scope->names.clear();
}

const Value* Run::Look(const Scope& scope, std::string_view name) {
  size_t passed = 0;
  const Value* found = scope.Find(name, &passed);
  ChargeCompared(passed);
  return found;
}

void Run::Define(Scope& scope, std::string_view name, Value value) {
  ChargeCompared(scope.names.size());
  scope.Set(name, std::move(value));
}

void Run::Refuse(std::string_view what, std::string_view allowed) const {
  ThrowAt(line_, what, allowed);
}

void Run::CheckArguments(std::string_view of, std::string_view names,
                         const Arguments& given) const {
  const auto refuse = [&](std::string_view what) {
    std::string known(names);
    std::erase(known, '?');
    Refuse(std::string(what).append(" of ").append(of),
           known.empty() ? "none" : "those of (" + known + ")");
  };
  const bool by_place = names.starts_with('/');
  if (by_place) names.remove_prefix(1);
  size_t place = 0;
  size_t matched = 0;  // of those with a name
  for (std::string_view rest = names; !rest.empty(); ++place) {
    std::string_view name = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
    const bool is_optional = name.ends_with('?');
    if (is_optional) name.remove_suffix(1);
    const bool is_named = !by_place && given.Get(SIZE_MAX, name) != nullptr;
    if (is_named && place < given.positional.size())
      refuse("the argument " + std::string(name) + " twice");
    if (!is_named && place >= given.positional.size() && !is_optional) {
      refuse("no argument " + std::string(name));
    }
    matched += is_named ? 1 : 0;
  }
  if (given.positional.size() > place || matched < given.named.size()) refuse("another argument");
}

void Run::CheckKey(const Value& value) {
  Charge();
  const List* list = value.AsList();
  const bool is_key = value.AsDict() == nullptr &&
                      (list == nullptr || value.IsTuple() || value.IsView(Value::View::kRange) ||
                       value.IsView(Value::View::kOnce));
  if (!is_key)
    Refuse("a key that is a " + std::string(value.TypeName()),
           "a string, a number or a tuple of them");
  if (value.IsTuple()) {
    for (const Value& item : *list) CheckKey(item);
  }
}

void Run::AppendTimes(std::string_view text, int64_t count, std::string& out) {
  if (count <= 0 || text.empty()) return;
  const double total = static_cast<double>(text.size()) * static_cast<double>(count) +
                       static_cast<double>(out.size());
  Charge(static_cast<size_t>(std::min(total, 1e18)));
  for (int64_t i = 0; i < count; ++i) out.append(text);
}

void Run::CheckText(size_t bytes) const {
  if (bytes > limits_.max_output_bytes) {
    Refuse("a text of " + std::to_string(bytes) + " bytes",
           "at most " + std::to_string(limits_.max_output_bytes));
  }
}

void Run::Spend(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.max_steps) {
    Refuse("more steps", "at most " + std::to_string(limits_.max_steps));
  }
}

void Run::Charge(size_t bytes) {
  CheckText(bytes);
  Spend(1 + static_cast<int64_t>(bytes / 16));
}

void Run::ChargeElement(size_t written) {
  CheckText(written);
  Spend(1);
}

void Run::Emit(const Value& value, ChatText& out) {
  const Value of = TextValue(*this, value);
  Emit(*of.AsString(), of.Own(), out);
}

void Run::Emit(std::string_view text, std::span<const TextSpan> own, ChatText& out) {
  Charge(text.size());
  const size_t size = out.text.size() + text.size();
  if (size > limits_.max_output_bytes) Charge(size);
  AppendText(out, text, own);
}

ChatText Run::Render(const Block& block, Value variables) {
  const auto globals = std::make_shared<Scope>();
  for (auto& [name, function] : GlobalFunctions()) globals->Set(name, std::move(function));
  const auto scope = std::make_shared<Scope>();
  scope->outer = globals;
  // No name comes twice.
  for (const auto& [name, value] : variables.AsDict()->members) {
    scope->names.emplace_back(ToText(*this, name), value);
  }
  ChatText out;
  Execute(block, scope, out);
  return out;
}

Run::Flow Run::Execute(const Block& block, const std::shared_ptr<Scope>& scope, ChatText& out) {
  const Level level(*this);
  for (const auto& statement : block) {
    line_ = statement->line;
    const Flow flow = ExecuteOne(*statement, scope, out);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Run::Flow Run::ExecuteOne(const Statement& statement, const std::shared_ptr<Scope>& scope,
                          ChatText& out) {
  Charge();
  const auto inner = [&] {
    auto made = std::make_shared<Scope>();
    made->outer = scope;
    return made;
  };
  switch (statement.kind) {
    case Tag::kText: {
      const TextSpan all{0, statement.text.size()};
      Emit(statement.text, {&all, 1}, out);
      return Flow::kNext;
    }
    case Tag::kPrint:
      Emit(Evaluate(*statement.expression, scope), out);
      return Flow::kNext;
    case Tag::kFor:
      return ExecuteFor(statement, scope, out);
    case Tag::kIf:
      for (size_t i = 0; i < statement.values.size(); ++i) {
        if (Evaluate(*statement.values[i], scope).IsTrue()) {
          return Execute(statement.bodies[i], scope, out);
        }
      }
      return Execute(statement.orelse, scope, out);
    case Tag::kSet:
    case Tag::kSetBlock:
      ExecuteSet(statement, scope);
      return Flow::kNext;
    case Tag::kMacro:
      Define(*scope, statement.text, MakeMacro(statement, scope));
      return Flow::kNext;
    case Tag::kCall: {
      const Value caller = MakeMacro(statement, scope);
      Emit(Call(*statement.expression, scope, &caller), out);
      return Flow::kNext;
    }
    case Tag::kWith: {
      const auto names = inner();
      for (size_t i = 0; i < statement.names.size(); ++i) {
        names->Set(statement.names[i], Evaluate(*statement.values[i], scope));
      }
      const Flow flow = Execute(statement.body, names, out);
      EndOf(*names, names.use_count() > 1);
      return flow;
    }
    case Tag::kFilter: {
      ChatText text;
      const Flow flow = Execute(statement.body, inner(), text);
      Emit(Filtered(*statement.expression, Value::Of(std::move(text)), inner()), out);
      return flow;
    }
    case Tag::kBody:
      return Execute(statement.body, inner(), out);
    case Tag::kBreak:
      return Flow::kBreak;
    case Tag::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Run::Assign(const std::vector<std::string>& names, const Value& value, Scope& scope) {
  if (names.size() == 1) return Define(scope, names[0], value);
  const List parts = Items(value);
  if (parts.size() != names.size()) {
    Refuse(std::to_string(parts.size()) + " values for " + std::to_string(names.size()) + " names",
           "as many values as names");
  }
  for (size_t i = 0; i < names.size(); ++i) Define(scope, names[i], parts[i]);
}

Run::Flow Run::ExecuteFor(const Statement& statement, const std::shared_ptr<Scope>& scope,
                          ChatText& out) {
  List items = Items(Evaluate(*statement.expression, scope));
  if (statement.condition != nullptr) {
    List kept;
    for (const Value& item : items) {
      const auto names = std::make_shared<Scope>();
      names->outer = scope;
      Assign(statement.names, item, *names);
      if (Evaluate(*statement.condition, names).IsTrue()) kept.push_back(item);
    }
    items = std::move(kept);
  }
  if (items.empty()) return Execute(statement.orelse, scope, out);
  const size_t count = items.size();
  for (size_t i = 0; i < count; ++i) {
    ChargeItems(8);  // the members of `loop`
    Dict loop;
    const auto set = [&](std::string_view name, Value value) {
      loop.members.emplace_back(Value::Of(std::string(name)), std::move(value));
    };
    set("index", Value::Of(i + 1));
    set("index0", Value::Of(i));
    set("first", Value::Of(i == 0));
    set("last", Value::Of(i + 1 == count));
    set("length", Value::Of(count));
    set("revindex", Value::Of(count - i));
    set("revindex0", Value::Of(count - i - 1));
    set("depth", Value::Of(int64_t{1}));  // of loops that call themselves
    set("depth0", Value::Of(int64_t{0}));
    set("previtem", i == 0 ? Value::Missing("previtem") : items[i - 1]);
    set("nextitem", i + 1 == count ? Value::Missing("nextitem") : items[i + 1]);
    set("cycle", Value::Of(Function{"cycle", [i](Run& run, const Arguments& arguments) {
                                      if (arguments.positional.empty()) {
                                        run.Refuse("cycle without values", "values");
                                      }
                                      return arguments.positional[i % arguments.positional.size()];
                                    }}));
    const auto names = std::make_shared<Scope>();
    names->outer = scope;
    names->Set("loop", Value::Of(std::move(loop), true));
    Assign(statement.names, items[i], *names);
    const Flow flow = Execute(statement.body, names, out);
    EndOf(*names, names.use_count() > 1);
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Run::ExecuteSet(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  Value value;
  if (statement.kind == Tag::kSetBlock) {
    const auto names = std::make_shared<Scope>();
    names->outer = scope;
    ChatText text;
    Execute(statement.body, names, text);
    value = Value::Of(std::move(text));
    if (statement.expression != nullptr) value = Filtered(*statement.expression, value, scope);
  } else {
    value = Evaluate(*statement.expression, scope);
  }
  if (statement.text.empty()) return Assign(statement.names, value, *scope);
  const Value* target = Look(*scope, statement.text);
  const auto* mapping = target == nullptr ? nullptr : target->As<Value::Mapping>();
  if (mapping == nullptr || !mapping->is_namespace) {
    Refuse("an assignment to a member of \"" + statement.text + "\"", "a namespace");
  }
  if (value.HoldsNamespace()) Refuse("a namespace in a namespace", "another value");
  mapping->members->Set(*this, Value::Of(statement.names[0]), value);
}

// The filters of a block, from the innermost out; the tree ends in a constant.
Value Run::Filtered(const Expression& filter, const Value& value,
                    const std::shared_ptr<Scope>& scope) {
  if (filter.kind != Node::kFilter) return value;
  const Value of = Filtered(*filter.items[0], value, scope);
  return Filter(filter.text, of, EvaluateArguments(filter, scope));
}

Value Run::Evaluate(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  Charge();
  const Level level(*this);
  const auto item = [&](size_t i) { return Evaluate(*expression.items[i], scope); };
  switch (expression.kind) {
    case Node::kConstant:
      return expression.value;
    case Node::kName: {
      const Value* found = Look(*scope, expression.text);
      return found == nullptr ? Value::Missing(expression.text) : *found;
    }
    case Node::kList:
    case Node::kTuple: {
      List items;
      for (size_t i = 0; i < expression.items.size(); ++i) items.push_back(item(i));
      return Value::Of(std::move(items), expression.kind == Node::kTuple);
    }
    case Node::kDict: {
      Dict members;
      for (size_t i = 0; i < expression.items.size(); i += 2) {
        Value key = item(i);
        CheckKey(key);
        members.Set(*this, std::move(key), item(i + 1));
      }
      return Value::Of(std::move(members));
    }
    case Node::kAttribute:
      return Attribute(item(0), expression.text);
    case Node::kItem: {
      const Value of = item(0);
      return Item(of, item(1));
    }
    case Node::kSlice:
      return EvaluateSlice(expression, scope);
    case Node::kCall:
      return Call(expression, scope);
    case Node::kFilter: {
      const Value of = item(0);
      return Filter(expression.text, of, EvaluateArguments(expression, scope));
    }
    case Node::kTest: {
      const Value of = item(0);
      return Value::Of(Test(expression.text, of, EvaluateArguments(expression, scope)));
    }
    case Node::kNot:
      return Value::Of(!item(0).IsTrue());
    case Node::kUnary: {
      const Value of = item(0);
      if (!of.IsNumber()) Refuse("a sign of a " + std::string(of.TypeName()), "a number");
      if (of.As<double>() != nullptr) {
        return Value::Of(expression.text == "-" ? -of.Real() : of.Real());
      }
      return Binary(expression.text, Value::Of(int64_t{0}), of);
    }
    case Node::kBinary: {
      const Value left = item(0);
      return Binary(expression.text, left, item(1));
    }
    case Node::kCompare: {
      Value left = item(0);
      for (size_t i = 0; i < expression.texts.size(); ++i) {
        Value right = item(i + 1);
        if (!Compare(expression.texts[i], left, right)) return Value::Of(false);
        left = std::move(right);
      }
      return Value::Of(true);
    }
    case Node::kAnd: {
      Value left = item(0);
      return left.IsTrue() ? item(1) : left;
    }
    case Node::kOr: {
      Value left = item(0);
      return left.IsTrue() ? left : item(1);
    }
    case Node::kIf:
      if (item(1).IsTrue()) return item(0);
      return expression.items.size() > 2 ? item(2) : Value::Missing("else");
  }
  return {};
}

// Python's slices, of lists and of the characters of a text.
Value Run::EvaluateSlice(const Expression& expression, const std::shared_ptr<Scope>& scope) {
  const Value of = Evaluate(*expression.items[0], scope);
  const std::string* text = of.AsString();
  const List* list = of.AsList();
  if ((text == nullptr && list == nullptr) || of.IsView(Value::View::kDict) ||
      of.IsView(Value::View::kOnce)) {
    Refuse("a slice of a " + std::string(of.TypeName()), "a list or a string");
  }
  int64_t parts[3];
  bool is_given[3];
  for (size_t i = 0; i < 3; ++i) {
    const auto& part = expression.items[i + 1];
    const Value value = part == nullptr ? Value() : Evaluate(*part, scope);
    is_given[i] = !value.IsNone();
    if (is_given[i] && !value.IsInteger()) Refuse("a slice's end that is no integer", "an integer");
    parts[i] = is_given[i] ? value.Integer() : 0;
  }
  const int64_t step = is_given[2] ? parts[2] : 1;
  if (step == 0) Refuse("a slice's step 0", "another number");
  size_t count = list != nullptr ? list->size() : 0;
  if (text != nullptr) {
    Charge(text->size());
    count = CountCharacters(*text);
  }
  const auto size = static_cast<int64_t>(count);
  const auto clamp = [&](int64_t place) {
    if (place < 0) place = place < -size ? -1 : place + size;
    return step > 0 ? std::clamp<int64_t>(place, 0, size)
                    : std::clamp<int64_t>(place, -1, size - 1);
  };
  int64_t begin = is_given[0] ? clamp(parts[0]) : step > 0 ? 0 : size - 1;
  const int64_t end = is_given[1] ? clamp(parts[1]) : step > 0 ? size : -1;
  if (text != nullptr && step == 1) {
    const std::string_view part = CharactersFrom(*text, static_cast<size_t>(begin),
                                                 static_cast<size_t>(std::max(begin, end)));
    Charge(part.size());
    return PartOf(of, part);
  }
  std::vector<std::string_view> characters;
  if (text != nullptr) {
    ChargeItems(count);
    characters = Characters(*text);
  }
  ChatText made_text;
  List made_list;
  const int64_t stride = std::clamp<int64_t>(step, -size - 1, size + 1);
  for (; stride > 0 ? begin < end : begin > end; begin += stride) {
    Charge();
    if (text != nullptr) {
      AppendPart(made_text, of, characters[static_cast<size_t>(begin)]);
    } else {
      made_list.push_back((*list)[static_cast<size_t>(begin)]);
    }
  }
  if (text != nullptr) return Value::Of(std::move(made_text), of.IsMarkup());
  if (of.IsView(Value::View::kRange)) return Value::Of(std::move(made_list), Value::View::kRange);
  return Value::Of(std::move(made_list), of.IsTuple());
}

}  // namespace sluice::text::jinja
