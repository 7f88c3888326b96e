// WordPiece: the longest token that a word begins with, then the longest that continues it, and so
// on; a word for which that fails is the unknown token. Takes time linear in the word.
#pragma once

#include <utility>
#include <vector>

#include "text/tokenizer/longest_match.h"
#include "text/tokenizer/model.h"

namespace sluice::text {

struct WordPieceOptions {
  int32_t unknown_id = -1;
  int64_t max_characters = 100;  // of a word; a longer one is unknown
  std::string prefix = "##";     // of a token that continues a word
};

class WordPiece : public Model {
 public:
  // tokens: as they are spelled, and their ids; of those that are spelled the same the first
  // counts.
  WordPiece(WordPieceOptions options,
            const std::vector<std::pair<std::string_view, int32_t>>& tokens);

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  struct Token {
    int32_t id;
    uint32_t size;  // in bytes, without the prefix where that is not the word's own
  };

  WordPieceOptions options_;
  std::vector<Token> tokens_;
  LongestMatcher beginning_;  // its values are places in tokens_
  LongestMatcher continuing_;
};

}  // namespace sluice::text
