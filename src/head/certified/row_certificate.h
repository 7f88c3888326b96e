// One hidden state after its scores: which rows of the head decide, and their logits.
//
// A token with a score plus half width below a logit that others reach for certain cannot be among
// them; the rest, the survivors, are computed from the weights, in the defined order. What is
// computed once replaces its interval (width 0). Where single logits are changed, all of this is
// about the changed ones, as soon as the scores exist.
#pragma once

#include <optional>

#include "head/certified/certified_tokens.h"
#include "head/certified/score_table.h"
#include "head/dense_table.h"
#include "semantics/adjust/token_adjust.h"
#include "semantics/order.h"
#include "sluice/certified_head.hpp"

namespace sluice {

// The head, as a backend reads it.
struct HeadSource {
  const DenseHead& dense;
  const PlaneView& planes;
  const DenseHeadTable& table;
  const ScoreTable& score;
};

struct RowSource {
  semantics::Row hidden;
  const HiddenState& state;
  const int32_t* bitmask = nullptr;  // null: every token is allowed
  const semantics::TokenAdjust& adjust;
};

// What a row works on; none of it is the row's own.
struct RowMemory {
  Intervals intervals = {};            // a whole number of tiles
  semantics::Token* tokens = nullptr;  // these three: one a token of the vocabulary
  int32_t* ids = nullptr;
  uint8_t* is_refined = nullptr;
  float* scores_before = nullptr;  // of strict planes: before a token was adjusted
};

class RowCertificate {
 public:
  // What both sources refer to outlives the certificate.
  RowCertificate(const HeadSource& head, const RowSource& row, const RowMemory& memory,
                 int64_t budget);

  static int64_t AllowedCount(const int32_t* bitmask, int64_t vocab);

  // Masks, and computes what has no interval. False: too much of it. To be called first, unless
  // ComputeAllowed is.
  bool Start();

  // All allowed tokens, from the weights alone; without scores.
  void ComputeAllowed();
  // What that gave; null where there are intervals in its place.
  const CertifiedTokens* allowed() const { return has_allowed_ ? &allowed_ : nullptr; }

  // Of the row, once started or computed.
  RowStatus status() const { return status_; }

  // At least the first k tokens: all at or above the least exact logit among the k largest scores,
  // or all there are. Those of at least `least`. None: more survivors than the budget.
  std::optional<CertifiedTokens> Top(int64_t k);
  std::optional<CertifiedTokens> From(float least);

  // The last token of the total order: its logit and how many tokens have it, itself among them;
  // and how many tokens are not masked.
  struct Bottom {
    float value;
    int32_t ties;
    int32_t support;
  };
  std::optional<Bottom> Last();

  // The logit of a token.
  float Compute(int32_t id);
  // Narrows a token's interval without the weights, where there is a way to.
  void Refine(int32_t id);
  // Narrows all with an upper end that reaches `least`. False: there is no way, or it was gone.
  bool RefineFrom(float least);
  // The logits of all with an upper end that reaches `least`.
  void ComputeFrom(float least);
  // Those of the `count` largest upper ends among what is not computed. False: there are none.
  bool ComputeLargest(int64_t count);
  int64_t budget() const { return first_budget_; }
  // How many more are worth computing; below 0: it was more already.
  int64_t Room() const { return budget_ - survivors_; }
  // Twice the budget, for what would lose all that it has computed. False: that was done.
  bool RaiseBudget();

  // The largest upper end of a token that was not computed; -inf: all were.
  float LargestOpen() const;
  // The computed tokens above x: when x is LargestOpen(), the first tokens of the row.
  CertifiedTokens ComputedAbove(float x);
  MassBounds Around(const MassQuestion& question) const {
    return score_.around(memory_.intervals, planes_.tiles() * kTileRows, question);
  }

  const Intervals& intervals() const { return memory_.intervals; }
  float Upper(int64_t id) const {
    return memory_.intervals.scores[id] + memory_.intervals.widths[id];
  }

  int64_t survivors() const { return survivors_; }
  int64_t refined() const { return refined_; }
  float margin() const { return margin_; }

 private:
  bool IsExact(int64_t id) const { return memory_.intervals.widths[id] == 0.0f; }
  void NoteMargin(float margin) { margin_ = margin < margin_ ? margin : margin_; }
  void Seal();
  void AdjustInterval(int32_t id, const semantics::TokenAdjust::OfToken& token);
  void PrefetchLow(int32_t id) const;
  template <typename KeyOf>
  int64_t Largest(int64_t k, const KeyOf& key_of);
  void ComputeListed(int64_t count);
  void RefineListed(int64_t count);
  template <typename MayMatter>
  int64_t ListSurvivors(const MayMatter& may_matter);
  template <typename MayMatter>
  bool ComputeSurvivors(const MayMatter& may_matter, int64_t& listed);
  CertifiedTokens Sorted(int64_t listed, float least);

  const DenseHead& head_;
  const PlaneView& planes_;
  const semantics::Row hidden_;
  const HiddenState& state_;
  const int32_t* bitmask_;
  const DenseHeadTable& dense_;
  const ScoreTable& score_;
  RowMemory memory_;
  const semantics::TokenAdjust& adjust_;
  CertifiedTokens allowed_;
  bool has_allowed_ = false;
  RowStatus status_ = RowStatus::kOk;
  const int64_t first_budget_;
  int64_t budget_;
  int64_t survivors_ = 0;
  int64_t refined_ = 0;
  float margin_ = semantics::Infinity();
};

}  // namespace sluice
