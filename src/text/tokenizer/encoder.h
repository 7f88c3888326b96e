// Text to ids: added tokens, normalisation, pieces, the model, and what goes around it all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/chat_text.hpp"
#include "sluice/tokenizer.hpp"
#include "text/decoder.h"
#include "text/normalize/normalizer.h"
#include "text/normalize/pre_tokenizer.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/model.h"

namespace sluice::text {

struct EncoderParts {
  // Not empty: why this file's texts cannot be encoded; the rest is not there then.
  std::string refused_parameter = {};
  std::string refused_value = {};
  std::string refused_allowed = {};

  std::vector<AddedToken> added_tokens = {};
  std::vector<NormalizerStep> normalizer = {};
  std::vector<PreTokenizerStep> pre_tokenizer = {};
  std::unique_ptr<const Model> model = {};
  std::vector<int32_t> before = {};  // special tokens around a text
  std::vector<int32_t> after = {};
};

class Encoder {
 public:
  explicit Encoder(EncoderParts parts);

  // Added tokens that normalisation changes; it is what they are decoded from.
  const Spellings& normalized_tokens() const { return normalized_tokens_; }

  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options) const {
    const TextSpan all{0, text.size()};
    return Encode(text, options, OwnText{{&all, 1}, 0, false});
  }
  // A chat: special and other added tokens are parsed in these spans only.
  std::vector<int32_t> EncodeChat(std::string_view text, const EncodeOptions& options,
                                  std::span<const TextSpan> own) const {
    return Encode(text, options, OwnText{own, 0, true});
  }

  // Compositions and compatible forms make of three bytes one, and of nine (Hangul) three.
  size_t most_shrinking() const { return parts_.normalizer.empty() ? 1 : 4; }

 private:
  std::vector<int32_t> Encode(std::string_view text, const EncodeOptions& options,
                              const OwnText& own) const;
  void EncodeSegment(std::string_view text, bool begins_at_the_start, int64_t max_tokens,
                     Pieces& pieces, ModelScratch& scratch, std::vector<int32_t>& ids) const;

  EncoderParts parts_;
  Spellings normalized_tokens_;
  AddedTokenFinder in_text_;
  AddedTokenFinder in_normalized_;
  AddedTokenFinder as_written_;  // those of in_normalized_, as they are before normalisation
};

}  // namespace sluice::text
