// Rejection sampling of drafts with vectors, as in semantics/draw/draft.h.
//
// Whether the draft is accepted depends on its own two probabilities and the masses; the recovered
// token comes from what the target keeps, so nothing else is weighed.
#include <algorithm>
#include <array>
#include <bit>
#include <optional>

#include "draw/draw_table.h"
#include "semantics/draw/draft.h"
#include "semantics/temperature.h"
#include "semantics/validate.h"

#if defined(SLUICE_DRAW_CPU_VERIFY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_DRAW_CPU_VERIFY_INL_H_
#undef SLUICE_DRAW_CPU_VERIFY_INL_H_
#else
#define SLUICE_DRAW_CPU_VERIFY_INL_H_
#endif

#include "draw/cpu/cdf-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// Distributions with one shape: which tokens of a block may have any probability (blocks from 0 on,
// one after the other), and how much one of those has, in units of 2^-40.

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

// semantics::LeftProbabilities.
template <class P, class Q>
class BlocksOfLeft {
 public:
  explicit BlocksOfLeft(const P& p) : p_(p) {}

  void Reject(const Q& q, uint64_t mass) {
    Rejected& one = rejected_[count_++];
    one.q.emplace(q);
    one.reciprocal = (static_cast<semantics::uint128_t>(1) << 103) / mass;
  }

  uint64_t At(size_t i) {
    for (size_t n = 0; n < count_; ++n) rejected_[n].block = rejected_[n].q->At(i);
    return p_.At(i);
  }
  void Restart() {
    for (size_t n = 0; n < count_; ++n) rejected_[n].q->Restart();
    p_.Restart();
  }
  uint64_t Of(size_t id) const {
    uint64_t left = p_.Of(id);
    for (size_t n = 0; n < count_ && left > 0; ++n) {
      const Rejected& one = rejected_[n];
      const uint64_t q = (one.block >> id % kBlock) & 1 ? one.q->Of(id) : 0;
      left = static_cast<uint64_t>((one.reciprocal * semantics::PositivePart(left, q)) >> 63);
    }
    return left;
  }

 private:
  struct Rejected {
    std::optional<Q> q;
    uint64_t block;
    semantics::uint128_t reciprocal;
  };

  P p_;
  std::array<Rejected, semantics::kMostTries> rejected_;
  size_t count_ = 0;
};

template <class P, class Q>
bool Accepts(P& p, Q& q, size_t draft, uint32_t u) {
  uint64_t p_block = 0, q_block = 0;
  for (size_t i = 0; i <= draft; i += kBlock) {
    p_block = p.At(i);
    q_block = q.At(i);
  }
  const uint64_t p_draft = (p_block >> draft % kBlock) & 1 ? p.Of(draft) : 0;
  const uint64_t q_draft = (q_block >> draft % kBlock) & 1 ? q.Of(draft) : 0;
  return semantics::AcceptsDraft(p_draft, q_draft, u);
}

// The first token at which the running mass of P - Q exceeds the threshold, or -1; and that mass.
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

// The drafts of one node in order. open(n, q): what the n-th was drawn from, or a status.
template <class Q, class P, class Open>
Verdict TryEach(const SelectInput& target, size_t size, P& p, std::span<const DraftToTry> drafts,
                Open open) {
  const NoiseKey& key = target.keys[0];
  const int32_t count = static_cast<int32_t>(drafts.size());
  for (int32_t n = 0; n < count; ++n) {
    const int32_t draft = drafts[static_cast<size_t>(n)].draft;
    std::optional<Q> q;
    const RowStatus status = open(drafts[static_cast<size_t>(n)], q);
    if (status != RowStatus::kOk) return {-1, -1, status};
    const uint32_t u = semantics::AcceptanceOfTry(key, static_cast<uint32_t>(n));
    p.Restart();
    if (Accepts(p, *q, static_cast<size_t>(draft), u)) return {n, draft, RowStatus::kOk};
    const uint64_t mass = WalkResidual(p, *q, size, ~uint64_t{0}).mass;
    if (mass == 0) break;
    if (n + 1 == count) {
      const uint64_t threshold = semantics::CdfThreshold(key, semantics::Stream::kRecovered, mass);
      return {-1, WalkResidual(p, *q, size, threshold).id, RowStatus::kOk};
    }
    if constexpr (requires { p.Reject(*q, mass); }) {
      q->Restart();
      p.Reject(*q, mass);
    }
  }
  return {-1, -1, RowStatus::kOk};
}

template <class Read, class Q, class Open>
Verdict VerifyAgainst(const SelectInput& target, const semantics::Row& row, const Cut& cut,
                      float max, std::span<const DraftToTry> drafts, Open open) {
  const size_t size = static_cast<size_t>(row.size);
  BlocksOfCut<Read> p(row, cut, max, semantics::ScalesOf(target.params[0]).draw);
  Verdict verdict;
  if (drafts.size() == 1) {
    verdict = TryEach<Q>(target, size, p, drafts, open);
  } else {
    BlocksOfLeft<BlocksOfCut<Read>, Q> left(p);
    verdict = TryEach<Q>(target, size, left, drafts, open);
  }
  if (verdict.status == RowStatus::kOk && verdict.id < 0) {  // nothing is left
    verdict.id = FirstKept<Read>(row, cut);
  }
  return verdict;
}

inline bool AreProbabilities(const float* given, size_t size) {
  const F32 d;
  auto holds = hn::Eq(hn::Zero(d), hn::Zero(d));
  size_t id = 0;
  for (; id + hn::Lanes(d) <= size; id += hn::Lanes(d)) {
    const auto q = hn::LoadU(d, given + id);
    holds = hn::And(holds, hn::And(hn::Ge(q, hn::Zero(d)), hn::Le(q, hn::Set(d, 1.0f))));
  }
  bool all = hn::AllTrue(d, holds);
  for (; id < size; ++id) all = all && given[id] >= 0.0f && given[id] <= 1.0f;
  return all;
}

// Drafts of one kind of source.
template <class Read>
Verdict VerifyRow(const SelectInput& target, const semantics::Row& row, const Cut& cut,
                  std::span<const DraftToTry> drafts) {
  if (semantics::IsGreedy(target.params[0])) {
    const int32_t best = FirstKept<Read>(row, cut);
    for (size_t n = 0; n < drafts.size(); ++n) {
      if (semantics::AcceptsGreedyDraft(best, drafts[n].draft)) {
        return {static_cast<int32_t>(n), best, RowStatus::kOk};
      }
    }
    return {-1, best, RowStatus::kOk};
  }
  const semantics::StatusAndMax found = ExamineRow<Read>(row);
  if (found.status != RowStatus::kOk) {  // a Cut of another row
    return VerifyByDefinition(target, cut, drafts);
  }
  if (drafts[0].source.probabilities != nullptr) {
    const size_t size = static_cast<size_t>(row.size);
    auto open = [size](const DraftToTry& one, std::optional<BlocksOfGiven>& q) HWY_ATTR {
      if (!AreProbabilities(one.source.probabilities, size)) return RowStatus::kBadParam;
      q.emplace(BlocksOfGiven{one.source.probabilities});
      return RowStatus::kOk;
    };
    return VerifyAgainst<Read, BlocksOfGiven>(target, row, cut, found.max, drafts, open);
  }
  if (drafts[0].source.model == nullptr) {
    auto open = [](const DraftToTry& one, std::optional<BlocksOfCertain>& q) {
      q.emplace(BlocksOfCertain{static_cast<size_t>(one.draft)});
      return RowStatus::kOk;
    };
    return VerifyAgainst<Read, BlocksOfCertain>(target, row, cut, found.max, drafts, open);
  }
  auto open = [](const DraftToTry& one, std::optional<BlocksOfCut<Read>>& q) HWY_ATTR {
    const SelectInput& source = *one.source.model;
    const semantics::Row model{source.logits.Row(0), source.logits.dtype, source.logits.vocab};
    const semantics::StatusAndMax model_found = ExamineRow<Read>(model);
    const bool is_valid = semantics::AreValid(source.params[0], source.limits);
    const RowStatus status = semantics::Worse(
        one.source.cut->status,
        semantics::Worse(model_found.status, is_valid ? RowStatus::kOk : RowStatus::kBadParam));
    if (status != RowStatus::kOk) return status;
    q.emplace(model, *one.source.cut, model_found.max, semantics::ScalesOf(source.params[0]).draw);
    return RowStatus::kOk;
  };
  return VerifyAgainst<Read, BlocksOfCut<Read>>(target, row, cut, found.max, drafts, open);
}

inline Verdict VerifyDrafts(const SelectInput& target, const Cut& cut,
                            std::span<const DraftToTry> drafts) {
  const LogitsView& logits = target.logits;
  const SelectInput* model = drafts[0].source.model;
  if (model != nullptr && model->logits.dtype != logits.dtype) {
    return VerifyByDefinition(target, cut, drafts);  // an unused pair of dtypes
  }
  const semantics::Row row{logits.Row(0), logits.dtype, logits.vocab};
  return WithReader(row.dtype, [&](auto read) HWY_ATTR {
    return VerifyRow<decltype(read)>(target, row, cut, drafts);
  });
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
