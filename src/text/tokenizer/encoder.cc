#include "text/tokenizer/encoder.h"

#include <algorithm>
#include <utility>

#include "support/check.h"
#include "text/normalize/utf8.h"
#include "text/tokenizer/vocabulary.h"

namespace sluice::text {
namespace {

// Normalisation moves bytes: where it changes a text that is not own as a whole, none of it counts
// as own any more.
OwnText OfNormalized(const OwnText& outer, std::string_view text, std::string_view normalized,
                     TextSpan* all) {
  if (normalized == text) return outer;
  *all = {0, normalized.size()};
  return outer.HasAll(text.size()) ? OwnText{{all, 1}, 0, outer.is_chat}
                                   : OwnText{{}, 0, outer.is_chat};
}

}  // namespace

Encoder::Encoder(EncoderParts parts) : parts_(std::move(parts)) {
  std::vector<AddedToken> in_text;
  std::vector<AddedToken> in_normalized;
  std::vector<AddedToken> as_written;
  for (AddedToken& token : parts_.added_tokens) {
    if (token.is_normalized || token.is_literal) {
      as_written.push_back(token);
      if (parts_.refused_parameter.empty() && !token.is_literal) {
        std::string normalized = token.content;
        size_t growth = kMaxTokenBytes;
        Normalize(parts_.normalizer, normalized, growth);
        if (normalized != token.content) normalized_tokens_[token.id] = normalized;
        token.content = std::move(normalized);
      }
      in_normalized.push_back(std::move(token));
    } else {
      in_text.push_back(std::move(token));
    }
  }
  in_text_ = AddedTokenFinder(std::move(in_text));
  in_normalized_ = AddedTokenFinder(std::move(in_normalized));
  as_written_ = AddedTokenFinder(std::move(as_written));
}

std::vector<int32_t> Encoder::Encode(std::string_view text, const EncodeOptions& options,
                                     const OwnText& own) const {
  if (!parts_.refused_parameter.empty()) {
    throw Error(ErrorCode::kUnavailable, parts_.refused_parameter, parts_.refused_value,
                parts_.refused_allowed);
  }
  if (const size_t valid = ValidPrefix(text); valid < text.size()) {
    ThrowInvalid("text", "no UTF-8 at byte " + std::to_string(valid), "UTF-8");
  }
  std::vector<int32_t> ids;
  ids.reserve(std::min(text.size() / 3, static_cast<size_t>(options.max_tokens)) + 8);
  if (options.add_special_tokens) ids = parts_.before;
  Pieces pieces;
  ModelScratch scratch;
  std::string normalized;
  size_t growth = GrowthOf(text.size());
  const auto is_full = [&] { return std::ssize(ids) > options.max_tokens; };
  const OwnText parsed = options.parse_special_tokens ? own : OwnText{};
  // `normalized` is what became of this part of the text.
  const auto encode_normalized = [&](std::string_view of, const OwnText& its_own) {
    const bool is_start = of.data() == text.data();
    in_normalized_.ForEachPart(normalized, its_own, [&](const AddedTokenFinder::Part& part) {
      if (is_full()) return;
      if (part.id >= 0) return ids.push_back(part.id);
      EncodeSegment(part.text, is_start && part.text.data() == normalized.data(),
                    options.max_tokens, pieces, scratch, ids);
    });
  };
  in_text_.ForEachPart(text, parsed, [&](const AddedTokenFinder::Part& outer) {
    if (is_full()) return;
    if (outer.id >= 0) return ids.push_back(outer.id);
    normalized.assign(outer.text);
    Normalize(parts_.normalizer, normalized, growth);
    const OwnText outer_own = parsed.From(static_cast<size_t>(outer.text.data() - text.data()));
    if (normalized == outer.text || !outer_own.is_chat || outer_own.HasAll(outer.text.size())) {
      TextSpan all;
      encode_normalized(outer.text, OfNormalized(outer_own, outer.text, normalized, &all));
      return;
    }
    // Bytes of the template and of messages, which normalisation moves: tokens of the template are
    // taken as it wrote them.
    as_written_.ForEachPart(outer.text, outer_own, [&](const AddedTokenFinder::Part& written) {
      if (is_full()) return;
      if (written.id >= 0) return ids.push_back(written.id);
      normalized.assign(written.text);
      Normalize(parts_.normalizer, normalized, growth);
      encode_normalized(written.text, OwnText{{}, 0, true});
    });
  });
  if (options.add_special_tokens) ids.insert(ids.end(), parts_.after.begin(), parts_.after.end());
  return ids;
}

void Encoder::EncodeSegment(std::string_view text, bool begins_at_the_start, int64_t max_tokens,
                            Pieces& pieces, ModelScratch& scratch,
                            std::vector<int32_t>& ids) const {
  pieces.text.assign(text);
  pieces.spans.assign(1, {0, text.size()});
  pieces.begins_at_the_start = begins_at_the_start;
  PreTokenize(parts_.pre_tokenizer, pieces);
  for (const Span span : pieces.spans) {
    if (std::ssize(ids) > max_tokens) return;
    parts_.model->Encode(std::string_view(pieces.text).substr(span.begin, span.end - span.begin),
                         scratch, ids);
  }
}

}  // namespace sluice::text
