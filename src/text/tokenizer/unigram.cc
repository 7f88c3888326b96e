#include "text/tokenizer/unigram.h"

#include <algorithm>
#include <string>
#include <utility>

#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
constexpr int32_t kUnknown = -1;

std::vector<std::string_view> TextsOf(const std::vector<UnigramToken>& tokens) {
  std::vector<std::string_view> texts;
  for (const UnigramToken& token : tokens) {
    if (token.text.size() > Unigram::kLongestToken) {
      ThrowInvalid("model.vocab", "a token of " + std::to_string(token.text.size()) + " bytes",
                   "at most " + std::to_string(Unigram::kLongestToken) + ", to encode with");
    }
    texts.push_back(token.text);
  }
  return texts;
}

}  // namespace

Unigram::Unigram(UnigramOptions options, const std::vector<UnigramToken>& tokens,
                 const std::array<int32_t, 256>& byte_ids)
    : options_(options), trie_(TextsOf(tokens)), byte_ids_(byte_ids) {
  for (const UnigramToken& token : tokens) {
    ids_.push_back(token.id);
    scores_.push_back(token.score);
  }
}

void Unigram::Encode(std::string_view piece, ModelScratch& scratch,
                     std::vector<int32_t>& ids) const {
  if (piece.size() >= kNone) ThrowInvalid("text.size()", "4 GiB or more", "less");
  std::vector<ModelScratch::Cut>& cuts = scratch.cuts;
  cuts.assign(piece.size() + 1, {0.0, kNone, kUnknown});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t token) {
    ModelScratch::Cut& cut = cuts[end];
    if (cut.begin != kNone && score <= cut.score) return;
    cut = {score, static_cast<uint32_t>(begin), token};
  };
  for (size_t at = 0; at < piece.size();) {
    const std::string_view rest = piece.substr(at);
    const size_t character = FirstOf(rest).size;
    const double score = cuts[at].score;
    bool is_known = false;
    trie_.ForEachPrefix(rest, [&](size_t size, int32_t token) {
      offer(at, at + size, Sum(scores_[static_cast<size_t>(token)], score), token);
      is_known = is_known || size == character;
    });
    if (!is_known) offer(at, at + character, Sum(options_.unknown_score, score), kUnknown);
    at += character;
  }
  // From the end: tokens, and runs of what is unknown.
  const size_t first = ids.size();
  std::vector<uint32_t>& ends = scratch.ends;
  ends.clear();
  for (size_t end = piece.size(); end > 0; end = cuts[end].begin) {
    ends.push_back(static_cast<uint32_t>(end));
  }
  ids.reserve(first + ends.size());
  for (size_t i = ends.size(); i-- > 0;) {
    const ModelScratch::Cut& cut = cuts[ends[i]];
    if (cut.token != kUnknown) {
      ids.push_back(ids_[static_cast<size_t>(cut.token)]);
      continue;
    }
    const size_t begin = cut.begin;
    while (options_.fuses_unknown && i > 0 && cuts[ends[i - 1]].token == kUnknown) --i;
    AppendUnknown(piece.substr(begin, ends[i] - begin), ids);
  }
}

void Unigram::AppendUnknown(std::string_view text, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char byte) { return byte_ids_[static_cast<uint8_t>(byte)]; };
  if (options_.has_byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) >= 0; })) {
    for (const char byte : text) ids.push_back(id_of(byte));
    return;
  }
  if (options_.unknown_id < 0) {
    ThrowInvalid("model.unk_id", "", "a token, for a character that has no other");
  }
  ids.push_back(options_.unknown_id);
}

}  // namespace sluice::text
