// One rendering of a template: names, limits, and the walk over the tree.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/chat_template.hpp"
#include "text/jinja/syntax/ast.h"

namespace sluice::text::jinja {

// Names in a block, and those around it.
struct Scope {
  std::vector<std::pair<std::string, Value>> names;
  std::shared_ptr<Scope> outer;
  bool is_held = false;  // by the run, with all that are further out

  // Here or further out. Adds to `passed` how many names it went by.
  const Value* Find(std::string_view name, size_t* passed) const;
  void Set(std::string_view name, Value value);  // here
};

class Run {
 public:
  class Level;

  Run(const ChatTemplateLimits& limits, std::optional<int64_t> seconds)
      : limits_(limits), seconds_(seconds) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  ChatText Render(const Block& block, Value variables);

  // Throws Error when the steps are used up, or a text of so many bytes is too long.
  void Charge(size_t bytes = 0);
  // For one element of a walk that has written so many bytes, and for bytes that are compared.
  void ChargeElement(size_t written);
  void ChargeCompared(size_t bytes) { Spend(static_cast<int64_t>(bytes / 16)); }
  // For so many items that are about to be made or copied.
  void ChargeItems(size_t count) { Spend(static_cast<int64_t>(count)); }

  Value Filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool Test(std::string_view name, const Value& value, const Arguments& arguments);
  // value.name, where that is a method; undefined where it is not.
  Value Method(const Value& value, std::string_view name);
  Value Item(const Value& value, const Value& key);
  Value Attribute(const Value& value, std::string_view name);
  Value Binary(std::string_view name, const Value& left, const Value& right);
  bool Compare(std::string_view name, const Value& left, const Value& right);
  // What a loop over it goes through.
  List Items(const Value& value);

  Value Made(std::string text, bool is_markup = false) {
    Charge(text.size());
    return Value::Text(std::move(text), is_markup);
  }
  Value Made(ChatText text, bool is_markup = false) {
    Charge(text.text.size());
    return Value::Of(std::move(text), is_markup);
  }
  // Appends the text so many times; charges for it before.
  void AppendTimes(std::string_view text, int64_t count, std::string& out);
  // Throws for what cannot be a key, such as a list.
  void CheckKey(const Value& value);

  // Throws for arguments of `of` that are not those of the names, as Function has them.
  void CheckArguments(std::string_view of, std::string_view names, const Arguments& given) const;
  [[noreturn]] void Refuse(std::string_view what, std::string_view allowed) const;
  std::optional<int64_t> seconds() const { return seconds_; }

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Flow Execute(const Block& block, const std::shared_ptr<Scope>& scope, ChatText& out);
  Flow ExecuteOne(const Statement& statement, const std::shared_ptr<Scope>& scope, ChatText& out);
  Flow ExecuteFor(const Statement& statement, const std::shared_ptr<Scope>& scope, ChatText& out);
  void ExecuteSet(const Statement& statement, const std::shared_ptr<Scope>& scope);
  Value MakeMacro(const Statement& statement, const std::shared_ptr<Scope>& scope);
  void Assign(const std::vector<std::string>& names, const Value& value, Scope& scope);
  void Emit(const Value& value, ChatText& out);
  void Emit(std::string_view text, std::span<const TextSpan> own, ChatText& out);
  const Value* Look(const Scope& scope, std::string_view name);
  void Define(Scope& scope, std::string_view name, Value value);
  void CheckText(size_t bytes) const;
  void Spend(int64_t steps);

  Value Evaluate(const Expression& expression, const std::shared_ptr<Scope>& scope);
  Value EvaluateSlice(const Expression& expression, const std::shared_ptr<Scope>& scope);
  Value Filtered(const Expression& filter, const Value& value, const std::shared_ptr<Scope>& scope);
  // `caller` is one more argument of that name.
  Value Call(const Expression& expression, const std::shared_ptr<Scope>& scope,
             const Value* caller = nullptr);
  Arguments EvaluateArguments(const Expression& expression, const std::shared_ptr<Scope>& scope);

  ChatTemplateLimits limits_;
  std::optional<int64_t> seconds_;
  int64_t steps_ = 0;
  int32_t depth_ = 0;
  int32_t line_ = 1;
  // Where macros were defined, and the scopes around: a macro is a value of a scope, or of a
  // namespace in one, and keeps the scope that it was defined in, in a circle that the end of the
  // run opens.
  std::vector<std::shared_ptr<Scope>> closures_;
};

bool IsFilter(std::string_view name);
bool IsTest(std::string_view name);

// The functions that every template has.
std::vector<std::pair<std::string_view, Value>> GlobalFunctions();

// Python's order; throws for what cannot be compared.
bool IsLess(Run& run, const Value& a, const Value& b);

// The item of a list or text at a place that may count from the end; -1 when there is none.
int64_t PlaceOf(int64_t index, size_t size);

}  // namespace sluice::text::jinja
