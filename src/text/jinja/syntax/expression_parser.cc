#include "text/jinja/syntax/expression_parser.h"

#include <charconv>
#include <initializer_list>

#include "text/jinja/marked_text.h"

namespace sluice::text::jinja {

using Kind = Token::Kind;
using Node = Expression::Kind;

std::unique_ptr<Expression> MakeExpression(Node kind, int32_t line, std::string text) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->text = std::move(text);
  return made;
}

namespace {

std::unique_ptr<Expression> MakePair(Node kind, int32_t line, std::string text, ExpressionPtr left,
                                     ExpressionPtr right) {
  auto made = MakeExpression(kind, line, std::move(text));
  made->items.push_back(std::move(left));
  made->items.push_back(std::move(right));
  return made;
}

ExpressionPtr Number(const Token& token) {
  auto made = MakeExpression(Node::kConstant, token.line);
  const char* last = token.text.data() + token.text.size();
  if (token.kind == Kind::kInteger) {
    int64_t value = 0;
    if (std::from_chars(token.text.data(), last, value).ec != std::errc()) {
      ThrowAt(token.line, token.text, "a number of 64 bits");
    }
    made->value = Value::Of(value);
  } else {
    double value = 0;
    if (std::from_chars(token.text.data(), last, value).ec != std::errc()) {
      ThrowAt(token.line, token.text, "a number");
    }
    made->value = Value::Of(value);
  }
  return made;
}

}  // namespace

// A tree higher than what can be evaluated could not be taken apart again.
std::unique_ptr<Expression> ExpressionParser::Measured(std::unique_ptr<Expression> made) const {
  const auto covers = [&](const auto& child) {
    if (child != nullptr) made->height = std::max(made->height, child->height + 1);
  };
  for (const auto& child : made->items) covers(child);
  for (const auto& child : made->arguments) covers(child);
  for (const auto& [name, child] : made->named) covers(child);
  covers(made->spread);
  covers(made->spread_named);
  if (made->height > 4 * max_depth()) {
    ThrowAt(made->line, "deeper nesting of an expression",
            "at most " + std::to_string(4 * max_depth()) + " levels");
  }
  return made;
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_condition) {
  const int32_t line = At().line;
  ExpressionPtr first = with_condition ? ParseExpression() : ParseOr();
  if (!Is(",")) return first;
  auto made = MakeExpression(Node::kTuple, line);
  made->items.push_back(std::move(first));
  while (TakeIf(",")) {
    if (At().kind == Kind::kEndBlock || At().kind == Kind::kEndPrint || Is(")")) break;
    made->items.push_back(with_condition ? ParseExpression() : ParseOr());
  }
  return Measured(std::move(made));
}

ExpressionPtr ExpressionParser::ParseExpression() {
  const Level level(*this);
  ExpressionPtr made = ParseOr();
  while (Is("if")) {
    const int32_t line = Take().line;
    auto choice = MakePair(Node::kIf, line, "", std::move(made), ParseOr());
    if (TakeIf("else")) choice->items.push_back(ParseExpression());
    made = Measured(std::move(choice));
  }
  return made;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr made = ParseAnd();
  while (Is("or")) {
    const int32_t line = Take().line;
    made = Measured(MakePair(Node::kOr, line, "", std::move(made), ParseAnd()));
  }
  return made;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr made = ParseNot();
  while (Is("and")) {
    const int32_t line = Take().line;
    made = Measured(MakePair(Node::kAnd, line, "", std::move(made), ParseNot()));
  }
  return made;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!Is("not")) return ParseCompare();
  const Level level(*this);
  auto made = MakeExpression(Node::kNot, Take().line);
  made->items.push_back(ParseNot());
  return Measured(std::move(made));
}

ExpressionPtr ExpressionParser::ParseCompare() {
  const int32_t line = At().line;
  ExpressionPtr first = ParseBinary(0);
  auto made = MakeExpression(Node::kCompare, line);
  for (;;) {
    std::string name;
    for (const std::string_view known : {"==", "!=", "<", ">", "<=", ">=", "in"}) {
      if (Is(known)) name = known;
    }
    if (Is("not") && Is("in", 1)) {
      name = "notin";
      Take();
    }
    if (name.empty()) break;
    Take();
    made->texts.push_back(name);
    if (made->items.empty()) made->items.push_back(std::move(first));
    made->items.push_back(ParseBinary(0));
  }
  if (made->items.empty()) return first;
  return Measured(std::move(made));
}

// + -, then ~, then * / // %, then **; each binds to the left.
ExpressionPtr ExpressionParser::ParseBinary(int level) {
  static const std::vector<std::vector<std::string_view>> kOperators = {
      {"+", "-"}, {"~"}, {"*", "/", "//", "%"}, {"**"}};
  if (level == 4) return ParseUnary(true);
  ExpressionPtr made = ParseBinary(level + 1);
  for (;;) {
    std::string name;
    for (const std::string_view known : kOperators[static_cast<size_t>(level)]) {
      if (Is(known)) name = known;
    }
    if (name.empty()) return made;
    const int32_t line = Take().line;
    made = Measured(MakePair(Node::kBinary, line, name, std::move(made), ParseBinary(level + 1)));
  }
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  ExpressionPtr made;
  if (Is("-") || Is("+")) {
    const Level level(*this);
    const Token sign = Take();
    auto unary = MakeExpression(Node::kUnary, sign.line, sign.text);
    unary->items.push_back(ParseUnary(false));
    made = Measured(std::move(unary));
  } else {
    made = ParsePrimary();
  }
  made = ParsePostfix(std::move(made));
  return with_filters ? ParseFilters(std::move(made)) : std::move(made);
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const Level level(*this);
  const Token token = Take();
  switch (token.kind) {
    case Kind::kName: {
      const std::string lower = token.text;
      auto made = MakeExpression(Node::kConstant, token.line);
      if (lower == "true" || lower == "True") {
        made->value = Value::Of(true);
      } else if (lower == "false" || lower == "False") {
        made->value = Value::Of(false);
      } else if (lower != "none" && lower != "None") {
        made->kind = Node::kName;
        made->text = token.text;
      }
      return made;
    }
    case Kind::kString: {
      auto made = MakeExpression(Node::kConstant, token.line);
      std::string text = token.text;
      while (At().kind == Kind::kString) text += Take().text;
      ChatText own;
      AppendOwn(own, text);
      made->value = Value::Of(std::move(own));
      return made;
    }
    case Kind::kInteger:
    case Kind::kReal:
      return Number(token);
    default:
      break;
  }
  if (token.text == "(") {
    if (TakeIf(")")) return MakeExpression(Node::kTuple, token.line);
    ExpressionPtr made = ParseTuple();
    Expect(")");
    return made;
  }
  if (token.text == "[") {
    auto made = MakeExpression(Node::kList, token.line);
    while (!Is("]")) {
      made->items.push_back(ParseExpression());
      if (!TakeIf(",")) break;
    }
    Expect("]");
    return Measured(std::move(made));
  }
  if (token.text == "{") {
    auto made = MakeExpression(Node::kDict, token.line);
    while (!Is("}")) {
      made->items.push_back(ParseExpression());
      Expect(":");
      made->items.push_back(ParseExpression());
      if (!TakeIf(",")) break;
    }
    Expect("}");
    return Measured(std::move(made));
  }
  PutBack();
  Refuse("an expression");
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr made) {
  for (;;) {
    if (Is(".")) {
      const int32_t line = Take().line;
      if (At().kind == Kind::kInteger) {
        made = Measured(MakePair(Node::kItem, line, "", std::move(made), Number(Take())));
        continue;
      }
      auto attribute = MakeExpression(Node::kAttribute, line, Name());
      attribute->items.push_back(std::move(made));
      made = Measured(std::move(attribute));
    } else if (Is("[")) {
      made = ParseSubscript(std::move(made));
    } else if (Is("(")) {
      auto call = MakeExpression(Node::kCall, At().line);
      call->items.push_back(std::move(made));
      ParseArguments(*call);
      made = Measured(std::move(call));
    } else {
      return made;
    }
  }
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr of) {
  const int32_t line = Take().line;
  ExpressionPtr first = Is(":") ? nullptr : ParseTuple();
  if (TakeIf("]")) {
    return Measured(MakePair(Node::kItem, line, "", std::move(of), std::move(first)));
  }
  auto made = MakePair(Node::kSlice, line, "", std::move(of), std::move(first));
  for (int part = 0; part < 2; ++part) {
    ExpressionPtr next;
    if (TakeIf(":") && !Is(":") && !Is("]")) next = ParseExpression();
    made->items.push_back(std::move(next));
  }
  Expect("]");
  return Measured(std::move(made));
}

void ExpressionParser::ParseArguments(Expression& call) {
  Expect("(");
  while (!Is(")")) {
    if (call.arguments.size() + call.named.size() == kMostArguments) {
      Refuse("at most 255 arguments");
    }
    if (call.spread_named != nullptr) Refuse("no argument after a dict of them");
    if (Is("*") && call.spread != nullptr) Refuse("one list of arguments");
    if (TakeIf("*")) {
      call.spread = ParseExpression();
    } else if (TakeIf("**")) {
      call.spread_named = ParseExpression();
    } else if (At().kind == Kind::kName && At(1).kind == Kind::kOperator && At(1).text == "=") {
      const std::string name = Name();
      Take();
      for (const auto& [known, value] : call.named) {
        if (known == name) Refuse("each argument once");
      }
      call.named.emplace_back(name, ParseExpression());
    } else {
      if (!call.named.empty() || call.spread != nullptr) Refuse("an argument with its name");
      call.arguments.push_back(ParseExpression());
    }
    if (!TakeIf(",")) break;
  }
  Expect(")");
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr of) {
  auto made = MakeExpression(Node::kFilter, At().line, Name());
  made->items.push_back(std::move(of));
  if (Is("(")) ParseArguments(*made);
  return Measured(std::move(made));
}

// For blocks: filters only, the first of which may have been introduced by a tag.
ExpressionPtr ExpressionParser::ParseFilterChain(ExpressionPtr made, bool has_begun) {
  while (std::exchange(has_begun, false) || TakeIf("|")) made = ParseFilter(std::move(made));
  return made;
}

// Filters, tests and calls, in any order after a value.
ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr made) {
  for (;;) {
    if (TakeIf("|")) {
      made = ParseFilter(std::move(made));
    } else if (Is("is")) {
      made = ParseTest(std::move(made));
    } else {
      return made;
    }
  }
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr of) {
  const int32_t line = Take().line;
  const bool is_negated = TakeIf("not");
  auto test = MakeExpression(Node::kTest, line, Name());
  test->items.push_back(std::move(of));
  const Token& token = At();
  const bool is_value = token.kind == Kind::kString || token.kind == Kind::kInteger ||
                        token.kind == Kind::kReal || Is("[") || Is("{");
  const bool is_name = token.kind == Kind::kName && !Is("else") && !Is("or") && !Is("and") &&
                       !Is("is") && !Is("if") && !Is("in") && !Is("not");
  if (Is("(")) {
    ParseArguments(*test);
  } else if (is_value || is_name) {
    test->arguments.push_back(ParsePostfix(ParsePrimary()));
  }
  ExpressionPtr measured = Measured(std::move(test));
  if (!is_negated) return measured;
  auto made = MakeExpression(Node::kNot, line);
  made->items.push_back(std::move(measured));
  return Measured(std::move(made));
}

}  // namespace sluice::text::jinja
