// WordPiece: the longest token that a word begins with, then the longest that continues it, and so
// on; a word for which that fails is the unknown token.
#pragma once

#include "text/model.h"
#include "text/token_map.h"

namespace sluice::text {

struct WordPieceOptions {
  int32_t unknown_id = -1;
  int64_t max_characters = 100;  // of a word; a longer one is unknown
  std::string prefix = "##";     // of a token that continues a word
};

class WordPiece : public Model {
 public:
  WordPiece(WordPieceOptions options, TokenMap tokens, size_t longest_token);

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  WordPieceOptions options_;
  TokenMap tokens_;
  size_t longest_token_;
};

}  // namespace sluice::text
