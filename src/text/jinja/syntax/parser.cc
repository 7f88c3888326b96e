#include "text/jinja/syntax/parser.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "text/jinja/syntax/expression_parser.h"

namespace sluice::text::jinja {
namespace {

using Kind = Token::Kind;
using Node = Expression::Kind;
using Tag = Statement::Kind;

class Parser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Block Run() {
    Block block = ParseBlock({});
    if (At().kind != Kind::kEnd) ThrowAt(At().line, "\"" + At().text + "\"", "no tag to end here");
    return block;
  }

 private:
  // Up to a tag of one of these names; takes the name.
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
    } else if (name == "call") {
      ParseCall(made);
    } else if (name == "with") {
      ParseWith(made);
    } else if (name == "generation") {  // marks what a model said; it prints as it is
      made.kind = Tag::kBody;
      EndTag();
      const int loops = std::exchange(loops_, 0);
      made.body = ParseBlock({"endgeneration"});
      loops_ = loops;
      Take();
    } else if (name == "filter") {
      made.kind = Tag::kFilter;
      auto empty = MakeExpression(Node::kConstant, made.line);
      made.expression = ParseFilterChain(std::move(empty), true);
      EndTag();
      made.body = ParseBlock({"endfilter"});
      Take();
    } else if (name == "break" || name == "continue") {
      made.kind = name == "break" ? Tag::kBreak : Tag::kContinue;
      if (loops_ == 0) ThrowAt(made.line, name, "it in a loop");
    } else {
      ThrowAt(made.line, "{% " + name + " %}",
              "for, if, set, macro, call, with, filter, generation, raw, break or continue");
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
    if (Is("|")) {
      made.expression = ParseFilterChain(MakeExpression(Node::kConstant, made.line), false);
    }
    EndTag();
    made.body = ParseBlock({"endset"});
    Expect("endset");
  }

  // The arguments of a macro, to the end of the bracket.
  void ParseParameters(Statement& made) {
    Expect("(");
    while (!Is(")")) {
      made.names.push_back(Name());
      made.values.push_back(TakeIf("=") ? ParseExpression() : nullptr);
      if (!TakeIf(",")) break;
    }
    Expect(")");
  }

  // The body of a macro, which is in no loop.
  void ParseMacroBody(Statement& made, std::string_view end) {
    const size_t begin = place();
    EndTag();
    const int loops = std::exchange(loops_, 0);
    made.body = ParseBlock({end});
    loops_ = loops;
    const auto is_argument = [&](std::string_view name) {
      return std::find(made.names.begin(), made.names.end(), name) != made.names.end();
    };
    made.takes_caller = HasName("caller", begin);
    made.takes_kwargs = HasName("kwargs", begin) && !is_argument("kwargs");
    made.takes_varargs = HasName("varargs", begin) && !is_argument("varargs");
    for (size_t i = 0; made.takes_caller && i < made.names.size(); ++i) {
      if (made.names[i] == "caller" && made.values[i] == nullptr) {
        ThrowAt(made.line, "the argument caller of a macro", "it with a default");
      }
    }
    Expect(end);
  }

  void ParseMacro(Statement& made) {
    made.kind = Tag::kMacro;
    made.text = Name();
    ParseParameters(made);
    ParseMacroBody(made, "endmacro");
    if (At().kind == Kind::kName) Take();  // its name once more
  }

  void ParseCall(Statement& made) {
    made.kind = Tag::kCall;
    made.text = "caller";
    if (Is("(")) ParseParameters(made);
    made.expression = ParseExpression();
    if (made.expression->kind != Node::kCall) Refuse("a call of a macro");
    ParseMacroBody(made, "endcall");
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

  int loops_ = 0;
};

}  // namespace

Block Parse(std::string_view source, int32_t max_depth) { return Parser(source, max_depth).Run(); }

}  // namespace sluice::text::jinja
