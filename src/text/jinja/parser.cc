#include "text/jinja/parser.h"

#include <charconv>
#include <initializer_list>

#include "support/check.h"
#include "text/jinja/lexer.h"

namespace sluice::text::jinja {
namespace {

using Kind = Token::Kind;
using Node = Expression::Kind;
using Tag = Statement::Kind;

std::unique_ptr<Expression> Make(Node kind, int32_t line, std::string text = {}) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->text = std::move(text);
  return made;
}

std::unique_ptr<Expression> MakePair(Node kind, int32_t line, std::string text, ExpressionPtr left,
                                     ExpressionPtr right) {
  auto made = Make(kind, line, std::move(text));
  made->items.push_back(std::move(left));
  made->items.push_back(std::move(right));
  return made;
}

class Parser {
 public:
  Parser(std::string_view source, int32_t max_depth)
      : tokens_(Tokenize(source)), max_depth_(max_depth) {}

  Block Run() {
    Block block = ParseBlock({});
    if (At().kind != Kind::kEnd) ThrowAt(At().line, "\"" + At().text + "\"", "no tag to end here");
    return block;
  }

 private:
  // One level of nesting, for as long as it lives.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > parser_.max_depth_) {
        ThrowAt(parser_.At().line, "deeper nesting",
                "at most " + std::to_string(parser_.max_depth_) + " levels");
      }
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  const Token& At(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  Token Take() { return tokens_[std::min(next_++, tokens_.size() - 1)]; }
  bool Is(std::string_view text, size_t ahead = 0) const {
    const Token& token = At(ahead);
    return (token.kind == Kind::kName || token.kind == Kind::kOperator) && token.text == text;
  }
  bool TakeIf(std::string_view text) {
    if (!Is(text)) return false;
    ++next_;
    return true;
  }
  void Expect(std::string_view text) {
    if (!TakeIf(text)) Refuse(text);
  }
  void Expect(Kind kind, std::string_view allowed) {
    if (At().kind != kind) Refuse(allowed);
    ++next_;
  }
  std::string Name() {
    if (At().kind != Kind::kName) Refuse("a name");
    return Take().text;
  }
  [[noreturn]] void Refuse(std::string_view allowed) const {
    const Token& token = At();
    const bool is_end = token.kind == Kind::kEnd;
    ThrowAt(token.line, is_end ? "the end" : "\"" + token.text + "\"", allowed);
  }

  // A tree higher than what can be evaluated could not be taken apart again.
  std::unique_ptr<Expression> Measured(std::unique_ptr<Expression> made) const {
    const auto covers = [&](const auto& child) {
      if (child != nullptr) made->height = std::max(made->height, child->height + 1);
    };
    for (const auto& child : made->items) covers(child);
    for (const auto& child : made->arguments) covers(child);
    for (const auto& [name, child] : made->named) covers(child);
    if (made->height > 4 * max_depth_) {
      ThrowAt(made->line, "deeper nesting of an expression",
              "at most " + std::to_string(4 * max_depth_) + " levels");
    }
    return made;
  }

  // Up to a tag of one of these names, whose name is taken.
  Block ParseBlock(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Block block;
    for (;;) {
      const Token& token = At();
      if (token.kind == Kind::kEnd) {
        if (ends.size() > 0) Refuse("{% " + std::string(*ends.begin()) + " %}");
        return block;
      }
      auto made = std::make_unique<Statement>();
      made->line = token.line;
      if (token.kind == Kind::kData) {
        made->kind = Tag::kText;
        made->text = Take().text;
      } else if (token.kind == Kind::kBeginPrint) {
        Take();
        made->kind = Tag::kPrint;
        made->expression = ParseTuple();
        Expect(Kind::kEndPrint, "}}");
      } else {
        Take();
        for (const std::string_view end : ends) {
          if (Is(end)) return block;
        }
        ParseTag(*made);
      }
      block.push_back(std::move(made));
    }
  }
  void EndTag() { Expect(Kind::kEndBlock, "%}"); }

  void ParseTag(Statement& made) {
    const std::string name = Name();
    if (name == "for") {
      ParseFor(made);
    } else if (name == "if") {
      ParseIf(made);
    } else if (name == "set") {
      ParseSet(made);
    } else if (name == "macro") {
      ParseMacro(made);
    } else if (name == "with") {
      ParseWith(made);
    } else if (name == "generation") {  // marks what a model said; it prints as it is
      made.kind = Tag::kBody;
      EndTag();
      made.body = ParseBlock({"endgeneration"});
      Take();
    } else if (name == "filter") {
      made.kind = Tag::kFilter;
      auto empty = Make(Node::kConstant, made.line);
      made.expression = ParseFilter(std::move(empty));
      EndTag();
      made.body = ParseBlock({"endfilter"});
      Take();
    } else if (name == "break" || name == "continue") {
      made.kind = name == "break" ? Tag::kBreak : Tag::kContinue;
      if (loops_ == 0) ThrowAt(made.line, name, "it in a loop");
    } else {
      ThrowAt(made.line, "{% " + name + " %}",
              "for, if, set, macro, with, filter, generation, raw, break or continue");
    }
    EndTag();
  }

  // Names to assign to: one, or a tuple of them.
  std::vector<std::string> ParseTargets() {
    std::vector<std::string> names;
    const bool has_bracket = TakeIf("(");
    do {
      if (has_bracket && Is(")")) break;
      names.push_back(Name());
    } while (TakeIf(","));
    if (has_bracket) Expect(")");
    return names;
  }

  void ParseFor(Statement& made) {
    made.kind = Tag::kFor;
    made.names = ParseTargets();
    Expect("in");
    made.expression = ParseTuple(false);
    if (TakeIf("if")) made.condition = ParseExpression();
    if (Is("recursive")) Refuse("a loop that does not call itself");
    EndTag();
    ++loops_;
    made.body = ParseBlock({"endfor", "else"});
    --loops_;
    if (TakeIf("else")) {
      EndTag();
      made.orelse = ParseBlock({"endfor"});
    }
    Expect("endfor");
  }

  void ParseIf(Statement& made) {
    made.kind = Tag::kIf;
    do {
      made.values.push_back(ParseTuple());
      EndTag();
      made.bodies.push_back(ParseBlock({"endif", "elif", "else"}));
    } while (TakeIf("elif"));
    if (TakeIf("else")) {
      EndTag();
      made.orelse = ParseBlock({"endif"});
    }
    Expect("endif");
  }

  void ParseSet(Statement& made) {
    made.kind = Tag::kSet;
    if (At(1).kind == Kind::kOperator && At(1).text == ".") {
      made.text = Name();
      Take();
      made.names.push_back(Name());
    } else {
      made.names = ParseTargets();
    }
    if (TakeIf("=")) {
      made.expression = ParseTuple();
      return;
    }
    made.kind = Tag::kSetBlock;
    if (Is("|")) made.expression = ParseFilters(Make(Node::kConstant, made.line));
    EndTag();
    made.body = ParseBlock({"endset"});
    Expect("endset");
  }

  void ParseMacro(Statement& made) {
    made.kind = Tag::kMacro;
    made.text = Name();
    Expect("(");
    while (!Is(")")) {
      made.names.push_back(Name());
      made.values.push_back(TakeIf("=") ? ParseExpression() : nullptr);
      if (!TakeIf(",")) break;
    }
    Expect(")");
    EndTag();
    const int loops = std::exchange(loops_, 0);
    made.body = ParseBlock({"endmacro"});
    loops_ = loops;
    Expect("endmacro");
    if (At().kind == Kind::kName) Take();  // its name once more
  }

  void ParseWith(Statement& made) {
    made.kind = Tag::kWith;
    while (At().kind != Kind::kEndBlock) {
      made.names.push_back(Name());
      Expect("=");
      made.values.push_back(ParseExpression());
      if (!TakeIf(",")) break;
    }
    EndTag();
    made.body = ParseBlock({"endwith"});
    Expect("endwith");
  }

  // One expression, or several with commas between them, which are a tuple.
  ExpressionPtr ParseTuple(bool with_condition = true) {
    const int32_t line = At().line;
    ExpressionPtr first = with_condition ? ParseExpression() : ParseOr();
    if (!Is(",")) return first;
    auto made = Make(Node::kTuple, line);
    made->items.push_back(std::move(first));
    while (TakeIf(",")) {
      if (At().kind == Kind::kEndBlock || At().kind == Kind::kEndPrint || Is(")")) break;
      made->items.push_back(with_condition ? ParseExpression() : ParseOr());
    }
    return Measured(std::move(made));
  }

  ExpressionPtr ParseExpression() {
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

  ExpressionPtr ParseOr() {
    ExpressionPtr made = ParseAnd();
    while (Is("or")) {
      const int32_t line = Take().line;
      made = Measured(MakePair(Node::kOr, line, "", std::move(made), ParseAnd()));
    }
    return made;
  }

  ExpressionPtr ParseAnd() {
    ExpressionPtr made = ParseNot();
    while (Is("and")) {
      const int32_t line = Take().line;
      made = Measured(MakePair(Node::kAnd, line, "", std::move(made), ParseNot()));
    }
    return made;
  }

  ExpressionPtr ParseNot() {
    if (!Is("not")) return ParseCompare();
    const Level level(*this);
    auto made = Make(Node::kNot, Take().line);
    made->items.push_back(ParseNot());
    return Measured(std::move(made));
  }

  ExpressionPtr ParseCompare() {
    const int32_t line = At().line;
    ExpressionPtr first = ParseBinary(0);
    auto made = Make(Node::kCompare, line);
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
  ExpressionPtr ParseBinary(int level) {
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

  ExpressionPtr ParseUnary(bool with_filters) {
    ExpressionPtr made;
    if (Is("-") || Is("+")) {
      const Level level(*this);
      const Token sign = Take();
      auto unary = Make(Node::kUnary, sign.line, sign.text);
      unary->items.push_back(ParseUnary(false));
      made = Measured(std::move(unary));
    } else {
      made = ParsePrimary();
    }
    made = ParsePostfix(std::move(made));
    return with_filters ? ParseFilters(std::move(made)) : std::move(made);
  }

  ExpressionPtr ParsePrimary() {
    const Level level(*this);
    const Token token = Take();
    switch (token.kind) {
      case Kind::kName: {
        const std::string lower = token.text;
        auto made = Make(Node::kConstant, token.line);
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
        auto made = Make(Node::kConstant, token.line);
        std::string text = token.text;
        while (At().kind == Kind::kString) text += Take().text;
        made->value = Value::Of(std::move(text));
        return made;
      }
      case Kind::kInteger:
      case Kind::kReal:
        return Number(token);
      default:
        break;
    }
    if (token.text == "(") {
      if (TakeIf(")")) return Make(Node::kTuple, token.line);
      ExpressionPtr made = ParseTuple();
      Expect(")");
      return made;
    }
    if (token.text == "[") {
      auto made = Make(Node::kList, token.line);
      while (!Is("]")) {
        made->items.push_back(ParseExpression());
        if (!TakeIf(",")) break;
      }
      Expect("]");
      return Measured(std::move(made));
    }
    if (token.text == "{") {
      auto made = Make(Node::kDict, token.line);
      while (!Is("}")) {
        made->items.push_back(ParseExpression());
        Expect(":");
        made->items.push_back(ParseExpression());
        if (!TakeIf(",")) break;
      }
      Expect("}");
      return Measured(std::move(made));
    }
    --next_;
    Refuse("an expression");
  }

  ExpressionPtr Number(const Token& token) {
    auto made = Make(Node::kConstant, token.line);
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

  ExpressionPtr ParsePostfix(ExpressionPtr made) {
    for (;;) {
      if (Is(".")) {
        const int32_t line = Take().line;
        if (At().kind == Kind::kInteger) {
          made = Measured(MakePair(Node::kItem, line, "", std::move(made), Number(Take())));
          continue;
        }
        auto attribute = Make(Node::kAttribute, line, Name());
        attribute->items.push_back(std::move(made));
        made = Measured(std::move(attribute));
      } else if (Is("[")) {
        made = ParseSubscript(std::move(made));
      } else if (Is("(")) {
        auto call = Make(Node::kCall, At().line);
        call->items.push_back(std::move(made));
        ParseArguments(*call);
        made = Measured(std::move(call));
      } else {
        return made;
      }
    }
  }

  ExpressionPtr ParseSubscript(ExpressionPtr of) {
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

  void ParseArguments(Expression& call) {
    Expect("(");
    while (!Is(")")) {
      if (Is("*") || Is("**")) Refuse("an argument");
      if (At().kind == Kind::kName && At(1).kind == Kind::kOperator && At(1).text == "=") {
        const std::string name = Name();
        Take();
        call.named.emplace_back(name, ParseExpression());
      } else {
        if (!call.named.empty()) Refuse("an argument with its name");
        call.arguments.push_back(ParseExpression());
      }
      if (!TakeIf(",")) break;
    }
    Expect(")");
  }

  ExpressionPtr ParseFilter(ExpressionPtr of) {
    auto made = Make(Node::kFilter, At().line, Name());
    made->items.push_back(std::move(of));
    if (Is("(")) ParseArguments(*made);
    return Measured(std::move(made));
  }

  // Filters, tests and calls, in any order behind a value.
  ExpressionPtr ParseFilters(ExpressionPtr made) {
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

  ExpressionPtr ParseTest(ExpressionPtr of) {
    const int32_t line = Take().line;
    const bool is_negated = TakeIf("not");
    auto test = Make(Node::kTest, line, Name());
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
    auto made = Make(Node::kNot, line);
    made->items.push_back(std::move(measured));
    return Measured(std::move(made));
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int32_t max_depth_;
  int32_t depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block Parse(std::string_view source, int32_t max_depth) { return Parser(source, max_depth).Run(); }

}  // namespace sluice::text::jinja
