// The parts of a Tokenizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "text/decoder.h"
#include "text/tokenizer/encoder.h"
#include "text/tokenizer/token_map.h"
#include "text/tokenizer/vocabulary.h"

namespace sluice::text {

class TokenizerImpl {
 public:
  TokenizerImpl(Vocabulary vocabulary, const DecoderSteps& decoder, EncoderParts encoder,
                const Spellings& surfaces = {})
      : vocabulary_(std::move(vocabulary)),
        encoder_(std::move(encoder)),
        rules_(CompileDecoder(decoder, encoder_.normalized_tokens(), surfaces, vocabulary_)),
        ids_(static_cast<size_t>(vocabulary_.size())) {
    // An added token is found before one of the model with its spelling.
    for (const bool is_added : {true, false}) {
      for (int32_t id = 0; id < vocabulary_.size(); ++id) {
        if (!vocabulary_.IsKnown(id)) continue;
        const bool is = vocabulary_.Flags(id) & kAddedToken;
        if (is == is_added) ids_.Add(vocabulary_.Token(id), id);
        longest_token_ = std::max(longest_token_, vocabulary_.Token(id).size());
      }
    }
  }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const DecodeRules& rules() const { return rules_; }
  const Encoder& encoder() const { return encoder_; }
  size_t longest_token() const { return longest_token_ * encoder_.most_shrinking(); }
  int32_t Find(std::string_view token) const { return ids_.Find(token); }  // -1: none

 private:
  Vocabulary vocabulary_;
  Encoder encoder_;
  DecodeRules rules_;
  TokenMap ids_;
  size_t longest_token_ = 0;
};

}  // namespace sluice::text
