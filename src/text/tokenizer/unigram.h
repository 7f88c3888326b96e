// Unigram: of all ways to cut a piece into tokens the one with the largest sum of scores, found by
// Viterbi's algorithm; a character that no token is costs more than any token.
//
// Kudo: "Subword regularization: improving neural network translation models with multiple subword
// candidates", 2018.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "text/tokenizer/model.h"
#include "text/tokenizer/prefix_trie.h"

namespace sluice::text {

struct UnigramOptions {
  int32_t unknown_id = -1;
  bool has_byte_fallback = false;
  bool fuses_unknown = true;
  // Sums are rounded to 32 bits, as SentencePiece has it; Hugging Face has 64.
  bool is_single_precision = false;
  double unknown_score = 0.0;
};

struct UnigramToken {
  std::string_view text;
  int32_t id;
  double score;
};

class Unigram : public Model {
 public:
  // byte_ids: of the tokens <0x00> to <0xFF>; -1: none. Throws Error for a token that is too long.
  Unigram(UnigramOptions options, const std::vector<UnigramToken>& tokens,
          const std::array<int32_t, 256>& byte_ids);

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& ids) const override;

  // A place of the text begins no more tokens than the longest one has bytes.
  static constexpr size_t kLongestToken = 1024;

 private:
  double Sum(double a, double b) const {
    const double sum = a + b;
    return options_.is_single_precision ? static_cast<double>(static_cast<float>(sum)) : sum;
  }
  void AppendUnknown(std::string_view text, std::vector<int32_t>& ids) const;

  UnigramOptions options_;
  PrefixTrie trie_;  // its values are places in the two lists
  std::vector<int32_t> ids_;
  std::vector<double> scores_;
  std::array<int32_t, 256> byte_ids_;
};

}  // namespace sluice::text
