// Stages 6 to 8 of single tokens, for callers without the row: the rules of AdjustRow in their
// order, of what a row says of one token.
//
// What they make of a value never falls as the value rises, with its rounding, so the ends of an
// interval become the ends of an interval:
//
//   x + b, x - c             b and c are the token's, whatever x is: the real sum rises with x, and
//                            rounding to the nearest never turns an order round
//   x > 0 ? x / r : x * r    r > 0: both real branches rise with x, the quotient is at least 0 and
//                            the product at most 0, so they rise across 0 as well; rounding, an
//                            overflow to an infinity and an underflow to 0 keep that
//
// and what follows one after the other is as each of them is. A NaN stays one, and -inf stays -inf.
#pragma once

#include "semantics/adjust/adjust.h"

namespace sluice::semantics {

class TokenAdjust {
 public:
  // The part of a row that concerns one token.
  struct OfToken {
    std::span<const BiasEntry> bias = {};
    const TokenCount* count = nullptr;

    bool IsNothing() const { return bias.empty() && count == nullptr; }
  };

  TokenAdjust() = default;  // changes nothing

  // in.bias: ascending by id, those of one id in their order. Counts the repeats of DRY. Views:
  // what `in` looks at must not change.
  explicit TokenAdjust(const AdjustInput& in)
      : bias_(in.bias), penalties_(in.penalties), scope_(in.penalty_scope), dry_(in.dry) {
    const bool has_penalties = penalties_.repetition != 1.0f || penalties_.frequency != 0.0f ||
                               penalties_.presence != 0.0f || dry_.multiplier != 0.0f;
    if (!has_penalties) return;
    CountRepeats(in.dry, in.tokens, in.counts, in.dry_workspace);
    counts_ = in.counts;
  }

  OfToken Find(int32_t id) const {
    OfToken token;
    if (!bias_.empty()) token.bias = BiasOf(FirstBias(id));
    if (!token.bias.empty() && token.bias[0].id != id) token.bias = {};
    if (!counts_.empty()) {
      const size_t at = LowerBound(counts_, id);
      if (at < counts_.size() && counts_[at].id == id) token.count = &counts_[at];
    }
    return token;
  }

  // Calls found(id, token) for every token that may change, once.
  template <typename Found>
  void ForEach(const Found& found) const {
    size_t b = 0;
    size_t c = 0;
    while (b < bias_.size() || c < counts_.size()) {
      const bool has_bias =
          b < bias_.size() && (c == counts_.size() || bias_[b].id <= counts_[c].id);
      const bool has_count =
          c < counts_.size() && (b == bias_.size() || counts_[c].id <= bias_[b].id);
      const int32_t id = has_bias ? bias_[b].id : counts_[c].id;
      OfToken token;
      if (has_bias) token.bias = BiasOf(b);
      if (has_count) token.count = &counts_[c];
      b += token.bias.size();
      c += has_count ? 1 : 0;
      found(id, token);
    }
  }

  float Adjusted(float x, const OfToken& token) const {
    for (const BiasEntry& entry : token.bias) x = Biased(x, entry.bias);
    if (token.count == nullptr) return x;
    return WithoutRepeat(Penalized(x, penalties_, *token.count, scope_), dry_, *token.count);
  }

 private:
  size_t FirstBias(int32_t id) const {
    size_t begin = 0;
    size_t end = bias_.size();
    while (begin < end) {
      const size_t middle = begin + (end - begin) / 2;
      if (bias_[middle].id < id) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }
  // From there on, those of the same id.
  std::span<const BiasEntry> BiasOf(size_t begin) const {
    size_t end = begin;
    while (end < bias_.size() && bias_[end].id == bias_[begin].id) ++end;
    return bias_.subspan(begin, end - begin);
  }

  std::span<const BiasEntry> bias_;
  std::span<const TokenCount> counts_;
  Penalties penalties_;
  PenaltyScope scope_ = PenaltyScope::kOutput;
  Dry dry_;
};

}  // namespace sluice::semantics
