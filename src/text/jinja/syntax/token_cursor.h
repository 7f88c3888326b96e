// Where a parser stands among the tokens of a template, and how deep.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "support/check.h"
#include "text/jinja/syntax/lexer.h"

namespace sluice::text::jinja {

class TokenCursor {
 public:
  TokenCursor(std::string_view source, int32_t max_depth)
      : tokens_(Tokenize(source)), max_depth_(max_depth) {}

 protected:
  // One level of nesting, for as long as it lives.
  class Level {
   public:
    explicit Level(TokenCursor& cursor) : cursor_(cursor) {
      if (++cursor_.depth_ > cursor_.max_depth_) {
        ThrowAt(cursor_.At().line, "deeper nesting",
                "at most " + std::to_string(cursor_.max_depth_) + " levels");
      }
    }
    ~Level() { --cursor_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenCursor& cursor_;
  };

  const Token& At(size_t ahead = 0) const {
    return tokens_[std::min(next_ + ahead, tokens_.size() - 1)];
  }
  Token Take() { return tokens_[std::min(next_++, tokens_.size() - 1)]; }
  void PutBack() { --next_; }
  bool Is(std::string_view text, size_t ahead = 0) const {
    const Token& token = At(ahead);
    return (token.kind == Token::Kind::kName || token.kind == Token::Kind::kOperator) &&
           token.text == text;
  }
  bool TakeIf(std::string_view text) {
    if (!Is(text)) return false;
    ++next_;
    return true;
  }
  void Expect(std::string_view text) {
    if (!TakeIf(text)) Refuse(text);
  }
  void Expect(Token::Kind kind, std::string_view allowed) {
    if (At().kind != kind) Refuse(allowed);
    ++next_;
  }
  std::string Name() {
    if (At().kind != Token::Kind::kName) Refuse("a name");
    return Take().text;
  }
  [[noreturn]] void Refuse(std::string_view allowed) const {
    const Token& token = At();
    const bool is_end = token.kind == Token::Kind::kEnd;
    ThrowAt(token.line, is_end ? "the end" : "\"" + token.text + "\"", allowed);
  }

  int32_t max_depth() const { return max_depth_; }

  size_t place() const { return next_; }
  // Whether the name, as no member, is among the tokens from `begin` to here.
  bool HasName(std::string_view name, size_t begin) const {
    for (size_t i = begin; i < std::min(next_, tokens_.size()); ++i) {
      const bool is_member = i > 0 && tokens_[i - 1].kind == Token::Kind::kOperator &&
                             (tokens_[i - 1].text == "." || tokens_[i - 1].text == "|");
      if (tokens_[i].kind == Token::Kind::kName && tokens_[i].text == name && !is_member) {
        return true;
      }
    }
    return false;
  }

 private:
  std::vector<Token> tokens_;
  size_t next_ = 0;
  int32_t max_depth_;
  int32_t depth_ = 0;
};

}  // namespace sluice::text::jinja
