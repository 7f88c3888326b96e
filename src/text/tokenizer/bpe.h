// Byte-pair encoding: a piece begins as characters (or bytes), and the neighbours with the lowest
// rank merge, the leftmost first, until none can. O(n log n).
//
// Sennrich, Haddow, Birch: "Neural machine translation of rare words with subword units", 2016.
#pragma once

#include <array>
#include <atomic>
#include <utility>

#include "text/tokenizer/model.h"
#include "text/tokenizer/token_map.h"

namespace sluice::text {

struct BpeOptions {
  // Symbols are bytes, and tokens are given as the bytes they stand for; without an affix.
  bool is_byte_level = false;
  bool has_byte_fallback = false;
  bool ignores_merges = false;  // a piece that is a token is that token
  bool fuses_unknown = false;
  int32_t unknown_id = -1;  // -1: characters without a token are dropped
  std::string prefix = {};  // of a symbol that is not the first of its piece
  std::string suffix = {};  // of the last
};

struct BpeMerge {
  int32_t left;
  int32_t right;
  int32_t merged;
  uint32_t rank;  // the lowest first; those of one rank make one token
};

class Bpe : public Model {
 public:
  // Ids are below `size`.
  Bpe(BpeOptions options, TokenMap tokens, const std::vector<BpeMerge>& merges, int32_t size);

  void Encode(std::string_view piece, ModelScratch& scratch,
              std::vector<int32_t>& ids) const override;

 private:
  enum class Shortcut : uint8_t { kUnknown, kYes, kNo };

  bool CutsAtMarks(const std::vector<BpeMerge>& merges) const;
  void EncodeWord(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>& ids) const;
  void EncodeByMerging(std::string_view piece, ModelScratch& scratch,
                       std::vector<int32_t>& ids) const;
  void Start(std::string_view piece, ModelScratch& scratch) const;
  void AddBytes(std::string_view piece, ModelScratch& scratch) const;
  void AddCharacters(std::string_view piece, ModelScratch& scratch) const;
  void MergeShort(ModelScratch& scratch) const;
  void MergeLong(ModelScratch& scratch) const;

  BpeOptions options_;
  TokenMap tokens_;
  MergeMap merges_;
  // Whether merging a token's own bytes makes it, once it was tried. Then a piece that is the token
  // takes one look-up.
  mutable std::vector<std::atomic<Shortcut>> shortcuts_;
  // Whether nothing merges with a following space mark (U+2581): then a text without words, as
  // Llama 2 and Gemma have it, is cut before its marks, and words are short.
  bool cuts_at_marks_ = false;
  std::vector<int32_t> merged_;         // by rank
  std::array<int32_t, 256> byte_ids_;   // of one byte: its token, or that of its name; -1: none
  std::array<int32_t, 128> ascii_ids_;  // of one character
};

}  // namespace sluice::text
