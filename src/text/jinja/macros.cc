// Macros and calls of functions.
#include <algorithm>

#include "text/jinja/run.h"
#include "text/jinja/syntax/level.h"

namespace sluice::text::jinja {

using Node = Expression::Kind;

Value Run::MakeMacro(const Statement& statement, const std::shared_ptr<Scope>& scope) {
  // A namespace may carry the macro out of the scope that it was defined in.
  for (auto around = scope; around != nullptr && !around->is_held; around = around->outer) {
    around->is_held = true;
    closures_.push_back(around);
  }
  return Value::Of(Function{
      statement.text,
      [&statement, scope](Run& run, const Arguments& arguments) {
        const Level level(run);
        const auto names = std::make_shared<Scope>();
        names->outer = scope;
        run.ChargeItems(statement.names.size());
        const auto& known = statement.names;
        if (arguments.positional.size() > known.size() && !statement.takes_varargs) {
          run.Refuse("more arguments of " + statement.text,
                     "at most " + std::to_string(known.size()));
        }
        const bool has_caller = std::find(known.begin(), known.end(), "caller") != known.end();
        const auto left = known.begin() + static_cast<std::ptrdiff_t>(
                                              std::min(arguments.positional.size(), known.size()));
        Dict others;
        for (const auto& [name, value] : arguments.named) {
          const bool is_caller = name == "caller" && statement.takes_caller && !has_caller;
          if (is_caller || std::find(left, known.end(), name) != known.end()) continue;
          if (!statement.takes_kwargs) {
            run.Refuse("the argument " + name + " of " + statement.text,
                       "those of the macro, once");
          }
          others.Set(run, Value::Of(name), value);
        }
        if (statement.takes_caller && !has_caller) {
          const Value* caller = arguments.Get(SIZE_MAX, "caller");
          names->Set("caller", caller == nullptr ? Value::Missing("caller") : *caller);
        }
        if (statement.takes_kwargs) names->Set("kwargs", Value::Of(std::move(others)));
        if (statement.takes_varargs) {
          const auto& given = arguments.positional;
          const auto begin = std::min(given.size(), known.size());
          run.ChargeItems(given.size() - begin);
          names->Set("varargs", Value::Of(List(given.begin() + static_cast<std::ptrdiff_t>(begin),
                                               given.end()),
                                          true));
        }
        for (size_t i = 0; i < statement.names.size(); ++i) {
          const std::string& name = statement.names[i];
          if (const Value* given = arguments.Get(i, name)) {
            names->Set(name, *given);
          } else if (statement.values[i] != nullptr) {
            names->Set(name, run.Evaluate(*statement.values[i], names));
          } else {
            names->Set(name, Value::Missing(name));
          }
        }
        ChatText out;
        run.Execute(statement.body, names, out);
        return Value::Of(std::move(out));
      },
      nullptr, true});
}

// *f gives the items of a list, **f the members of a dict with names as keys.
Arguments Run::EvaluateArguments(const Expression& expression,
                                 const std::shared_ptr<Scope>& scope) {
  Arguments made;
  for (const auto& argument : expression.arguments) {
    made.positional.push_back(Evaluate(*argument, scope));
  }
  for (const auto& [name, argument] : expression.named) {
    made.named.emplace_back(name, Evaluate(*argument, scope));
  }
  const auto check = [&](size_t more) {
    if (made.positional.size() + made.named.size() + more > kMostArguments) {
      Refuse("more arguments", "at most " + std::to_string(kMostArguments));
    }
  };
  if (expression.spread != nullptr) {
    List more = Items(Evaluate(*expression.spread, scope));
    check(more.size());
    made.positional.insert(made.positional.end(), more.begin(), more.end());
  }
  if (expression.spread_named != nullptr) {
    const Value more = Evaluate(*expression.spread_named, scope);
    if (more.AsDict() == nullptr) {
      Refuse("named arguments of a " + std::string(more.TypeName()), "a dict");
    }
    check(more.AsDict()->members.size());
    for (const auto& [key, value] : more.AsDict()->members) {
      const std::string* name = key.AsString();
      if (name == nullptr) Refuse("a name that is a " + std::string(key.TypeName()), "a string");
      Charge(name->size());
      if (made.Get(SIZE_MAX, *name) != nullptr) Refuse("the argument " + *name, "it once");
      made.named.emplace_back(*name, value);
    }
  }
  return made;
}

Value Run::Call(const Expression& expression, const std::shared_ptr<Scope>& scope,
                const Value* caller) {
  const Value callee = Evaluate(*expression.items[0], scope);
  const auto* function = callee.As<std::shared_ptr<const Function>>();
  if (function == nullptr) {
    const auto* missing = callee.As<Undefined>();
    Refuse(missing != nullptr ? "a call of \"" + missing->name + "\", which is not defined"
                              : "a call of a " + std::string(callee.TypeName()),
           "a function");
  }
  Arguments arguments = EvaluateArguments(expression, scope);
  if (caller != nullptr) {
    if (arguments.Get(SIZE_MAX, "caller") != nullptr) Refuse("the argument caller", "it once");
    arguments.named.emplace_back("caller", *caller);
  }
  const std::shared_ptr<const Function> held = *function;
  if (held->parameters != nullptr) CheckArguments(held->name, held->parameters, arguments);
  return held->call(*this, arguments);
}

}  // namespace sluice::text::jinja
