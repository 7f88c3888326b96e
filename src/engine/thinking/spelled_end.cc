#include "engine/thinking/spelled_end.h"

#include <algorithm>
#include <string>

#include "sluice/detokenizer.hpp"
#include "support/check.h"
#include "text/tokenizer/tokenizer_impl.h"

namespace sluice::engine {
namespace {

using Part = ReasoningPlace::Part;

// The text of tokens that follow others.
std::string TextWithin(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const std::vector<int32_t> before = tokenizer.Encode("a", {.add_special_tokens = false});
  Detokenizer detokenizer(tokenizer, {.skip_special_tokens = false}, before);
  std::string text;
  detokenizer.Step(ids, text);
  detokenizer.Finish(text);
  return text;
}

std::vector<int32_t> Spell(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = true});
}

// Reasoning that ends with the first bytes of its end.
ReasoningPlace PlaceAfter(ReasoningFormat format, const Tokenizer& tokenizer, size_t matched) {
  ReasoningPlace place(format, tokenizer, true);
  place.Step(-1, ReasoningEnd(format).substr(0, matched));
  return place;
}

bool GoesBeyond(ReasoningPlace place, int32_t id, std::string_view piece) {
  const size_t before = place.Step(id, piece);
  if (place.part() != Part::kAnswer) return false;
  return piece.find_first_not_of(" \n\r\t", before) != std::string_view::npos;
}

}  // namespace

SpelledEnd::SpelledEnd(ReasoningFormat format, const Tokenizer& tokenizer) {
  const std::string_view end = ReasoningEnd(format);
  const int32_t token = ReasoningPlace(format, tokenizer, true).end_id();
  std::vector<int32_t> whole = Spell(tokenizer, end);
  if (token >= 0) whole = {token};
  if (token < 0 && !TextWithin(tokenizer, whole).ends_with(end)) {
    ThrowInvalid("thinking.format", ToText(Name(format)),
                 "one with an end that the tokenizer can spell");
  }
  for (size_t matched = 0; matched < end.size(); ++matched) {
    const std::string_view rest = end.substr(matched);
    std::vector<int32_t> ids = token < 0 ? Spell(tokenizer, rest) : whole;
    const bool is_rest = token < 0 && TextWithin(tokenizer, ids) == rest;
    rests_.push_back(is_rest ? std::move(ids) : whole);
  }

  beyond_.resize(end.size());
  const text::Vocabulary& vocabulary = tokenizer.impl().vocabulary();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.IsKnown(id)) continue;
    const std::string_view piece = vocabulary.Bytes(vocabulary.Piece(id));
    if (piece.find(end.back()) == std::string_view::npos || id == token) continue;
    for (size_t matched = 0; matched < end.size(); ++matched) {
      if (GoesBeyond(PlaceAfter(format, tokenizer, matched), id, piece)) {
        beyond_[matched].push_back(id);
      }
    }
  }
}

std::shared_ptr<const SpelledEnd> SpelledEnds::Get(ReasoningFormat format,
                                                   const Tokenizer& tokenizer) {
  const std::lock_guard lock(mutex_);
  const auto place = static_cast<size_t>(format);
  if (ends_.size() <= place) ends_.resize(place + 1);
  if (ends_[place] == nullptr) {
    ends_[place] = std::make_shared<const SpelledEnd>(format, tokenizer);
  }
  return ends_[place];
}

}  // namespace sluice::engine
