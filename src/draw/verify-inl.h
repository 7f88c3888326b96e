// Rejection sampling of a draft with vectors, as in semantics/draft.h.
//
// Whether the draft is accepted depends on its own two probabilities and the masses; the recovered
// token comes from what the target keeps, so nothing else is weighed.
#include <algorithm>
#include <bit>

#include "draw/draw_table.h"
#include "semantics/draft.h"
#include "semantics/temperature.h"
#include "semantics/validate.h"

#if defined(SLUICE_DRAW_VERIFY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_VERIFY_INL_H_
#undef SLUICE_DRAW_VERIFY_INL_H_
#else
#define SLUICE_DRAW_VERIFY_INL_H_
#endif

#include "draw/cdf-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Three kinds of distributions with one shape: which tokens of a block may have any probability
// (blocks from 0 on, one after the other), and how much one of those has, in units of 2^-40.

// semantics::CutProbabilities.
template <class Read>
class BlocksOfCut {
 public:
  BlocksOfCut(const semantics::Row& row, const Cut& cut, float max, float scale)
      : row_(row), max_(max), scale_(scale), blocks_(row, cut) {
    const uint64_t mass = KeptMass<Read>(row, cut, max, scale);
    if (mass > 0) reciprocal_ = (static_cast<semantics::uint128_t>(1) << 103) / mass;
  }

  uint64_t At(size_t i) { return blocks_.At(i); }
  void Restart() { blocks_.set_ties({}); }
  uint64_t Of(size_t id) const {  // semantics::Probability40 with the division done once
    const uint64_t weight = semantics::Weight(Read::One(row_.data, id), max_, scale_);
    return static_cast<uint64_t>((reciprocal_ * weight) >> 63);
  }

 private:
  semantics::Row row_;
  float max_;
  float scale_;
  semantics::uint128_t reciprocal_ = 0;
  CutBlocks<Read> blocks_;
};

struct BlocksOfGiven {
  const float* q;

  uint64_t At(size_t) { return kWholeBlock; }
  void Restart() {}
  uint64_t Of(size_t id) const { return semantics::Fixed40(q[id]); }
};

struct BlocksOfCertain {
  size_t draft;

  uint64_t At(size_t) { return kWholeBlock; }
  void Restart() {}
  uint64_t Of(size_t id) const { return id == draft ? semantics::kFullWeight : 0; }
};

template <class P, class Q>
bool Accepts(P& p, Q& q, size_t draft, const NoiseKey& key) {
  uint64_t p_block = 0, q_block = 0;
  for (size_t i = 0; i <= draft; i += kBlock) {
    p_block = p.At(i);
    q_block = q.At(i);
  }
  const uint64_t p_draft = (p_block >> draft % kBlock) & 1 ? p.Of(draft) : 0;
  const uint64_t q_draft = (q_block >> draft % kBlock) & 1 ? q.Of(draft) : 0;
  return semantics::AcceptsDraft(p_draft, q_draft,
                                 semantics::Uniform32(key, semantics::Stream::kAcceptance));
}

// The first token whose running mass of P - Q exceeds the threshold, or -1; and that mass.
struct Residual {
  int32_t id;
  uint64_t mass;
};

template <class P, class Q>
Residual WalkResidual(P& p, Q& q, size_t size, uint64_t threshold) {
  uint64_t running = 0;
  p.Restart();
  q.Restart();
  for (size_t i = 0; i < size; i += kBlock) {
    const uint64_t q_block = q.At(i);
    for (uint64_t bits = p.At(i); bits != 0; bits &= bits - 1) {
      const size_t bit = static_cast<size_t>(std::countr_zero(bits));
      const uint64_t q_id = (q_block >> bit) & 1 ? q.Of(i + bit) : 0;
      running += semantics::PositivePart(p.Of(i + bit), q_id);
      if (running > threshold) return {static_cast<int32_t>(i + bit), running};
    }
  }
  return {-1, running};
}

template <class Read, class Q>
Verdict VerifyAgainst(const SelectInput& target, const semantics::Row& row, const Cut& cut,
                      float max, int32_t draft, Q q) {
  const NoiseKey& key = target.keys[0];
  BlocksOfCut<Read> p(row, cut, max, semantics::ScalesOf(target.params[0]).draw);
  if (Accepts(p, q, static_cast<size_t>(draft), key)) return {true, draft, RowStatus::kOk};

  const size_t size = static_cast<size_t>(row.size);
  const uint64_t mass = WalkResidual(p, q, size, ~uint64_t{0}).mass;
  if (mass == 0) return {false, FirstKept<Read>(row, cut), RowStatus::kOk};
  const uint64_t threshold = semantics::CdfThreshold(key, semantics::Stream::kRecovered, mass);
  return {false, WalkResidual(p, q, size, threshold).id, RowStatus::kOk};
}

template <class Read>
Verdict VerifyRow(const SelectInput& target, const semantics::Row& row, const Cut& cut,
                  int32_t draft, const DraftSource& source) {
  if (semantics::IsGreedy(target.params[0])) {
    const int32_t best = FirstKept<Read>(row, cut);
    return {semantics::AcceptsGreedyDraft(best, draft), best, RowStatus::kOk};
  }
  const semantics::StatusAndMax found = ExamineRow<Read>(row);
  if (found.status != RowStatus::kOk) {  // a Cut of another row
    return VerifyByDefinition(target, cut, draft, source);
  }
  if (source.probabilities != nullptr) {
    const F32 d;
    const size_t size = static_cast<size_t>(row.size);
    auto holds = hn::Eq(hn::Zero(d), hn::Zero(d));
    size_t id = 0;
    for (; id + hn::Lanes(d) <= size; id += hn::Lanes(d)) {
      const auto q = hn::LoadU(d, source.probabilities + id);
      holds = hn::And(holds, hn::And(hn::Ge(q, hn::Zero(d)), hn::Le(q, hn::Set(d, 1.0f))));
    }
    bool all = hn::AllTrue(d, holds);
    for (; id < size; ++id) {
      all = all && source.probabilities[id] >= 0.0f && source.probabilities[id] <= 1.0f;
    }
    if (!all) return {false, -1, RowStatus::kBadParam};
    return VerifyAgainst<Read>(target, row, cut, found.max, draft,
                               BlocksOfGiven{source.probabilities});
  }
  if (source.model == nullptr) {
    return VerifyAgainst<Read>(target, row, cut, found.max, draft,
                               BlocksOfCertain{static_cast<size_t>(draft)});
  }
  const LogitsView& logits = source.model->logits;
  const semantics::Row model{logits.Row(0), logits.dtype, logits.vocab};
  const semantics::StatusAndMax model_found = ExamineRow<Read>(model);
  const SelectParams& params = source.model->params[0];
  const bool is_valid = semantics::AreValid(params, source.model->limits);
  const RowStatus status = semantics::Worse(
      source.cut->status,
      semantics::Worse(model_found.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam));
  if (status != RowStatus::kOk) return {false, -1, status};
  const BlocksOfCut<Read> q(model, *source.cut, model_found.max, semantics::ScalesOf(params).draw);
  return VerifyAgainst<Read>(target, row, cut, found.max, draft, q);
}

inline Verdict VerifyDraft(const SelectInput& target, const Cut& cut, int32_t draft,
                           const DraftSource& source) {
  const LogitsView& logits = target.logits;
  if (source.model != nullptr && source.model->logits.dtype != logits.dtype) {
    return VerifyByDefinition(target, cut, draft, source);  // a pair of dtypes that nobody has
  }
  const semantics::Row row{logits.Row(0), logits.dtype, logits.vocab};
  return WithReader(row.dtype, [&](auto read) HWY_ATTR {
    return VerifyRow<decltype(read)>(target, row, cut, draft, source);
  });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
