// A template as a tree.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace sluice::text::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,       // items
    kTuple,      // items
    kDict,       // items: keys and values in turns
    kAttribute,  // items[0].text
    kItem,       // items[0][items[1]]
    kSlice,      // items[0][items[1]:items[2]:items[3]], those that are given
    kCall,       // items[0](...)
    kFilter,     // items[0]|text(...)
    kTest,       // items[0] is text(...)
    kNot,
    kUnary,    // text
    kBinary,   // text: + - * / // % ** ~
    kCompare,  // items, and between them texts: == != < > <= >= in notin
    kAnd,
    kOr,
    kIf,  // items[0] if items[1] else items[2], which may be missing
  };
  Kind kind;
  int32_t line = 0;
  int32_t height = 0;  // of the tree below
  std::string text = {};
  Value value = {};
  std::vector<ExpressionPtr> items = {};
  std::vector<std::string> texts = {};
  // Of a call, a filter or a test.
  std::vector<ExpressionPtr> arguments = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  ExpressionPtr spread = {};        // *spread: a list of more arguments
  ExpressionPtr spread_named = {};  // **spread_named: a dict of them
};

inline constexpr size_t kMostArguments = 255;  // of a call: they are copied from call to call

struct Statement;
using Block = std::vector<std::unique_ptr<const Statement>>;

struct Statement {
  enum class Kind : uint8_t {
    kText,
    kPrint,
    kFor,  // names in expression if condition: body, else orelse
    kIf,   // of conditions the first that is true: its bodies, else orelse
    kSet,  // names = expression, or text.names[0] = expression of a namespace
    kSetBlock,
    kMacro,   // text(names = defaults): body
    kCall,    // the call expression; its caller(names = defaults) is body
    kWith,    // names = values: body
    kFilter,  // the text of body through expression
    kBody,
    kBreak,
    kContinue,
  };
  Kind kind;
  int32_t line = 0;
  // Of a macro: it looks at the name.
  bool takes_caller = false;
  bool takes_kwargs = false;
  bool takes_varargs = false;
  std::string text = {};
  std::vector<std::string> names = {};
  ExpressionPtr expression = {};
  ExpressionPtr condition = {};
  std::vector<ExpressionPtr> values = {};  // conditions, defaults (null: none) or values
  std::vector<Block> bodies = {};
  Block body = {};
  Block orelse = {};
};

}  // namespace sluice::text::jinja
