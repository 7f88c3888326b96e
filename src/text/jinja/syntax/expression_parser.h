// Tokens of an expression to its tree.
#pragma once

#include "text/jinja/syntax/ast.h"
#include "text/jinja/syntax/token_cursor.h"

namespace sluice::text::jinja {

std::unique_ptr<Expression> MakeExpression(Expression::Kind kind, int32_t line,
                                           std::string text = {});

class ExpressionParser : public TokenCursor {
 public:
  using TokenCursor::TokenCursor;

 protected:
  // One expression, or several with commas between them, which are a tuple.
  ExpressionPtr ParseTuple(bool with_condition = true);
  ExpressionPtr ParseExpression();
  ExpressionPtr ParseFilter(ExpressionPtr of);
  ExpressionPtr ParseFilters(ExpressionPtr made);
  ExpressionPtr ParseFilterChain(ExpressionPtr made, bool has_begun);

 private:
  std::unique_ptr<Expression> Measured(std::unique_ptr<Expression> made) const;
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseBinary(int level);
  ExpressionPtr ParseUnary(bool with_filters);
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParsePostfix(ExpressionPtr made);
  ExpressionPtr ParseSubscript(ExpressionPtr of);
  void ParseArguments(Expression& call);
  ExpressionPtr ParseTest(ExpressionPtr of);
};

}  // namespace sluice::text::jinja
