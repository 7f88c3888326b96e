// A draw with typical sampling before a top-k: the rule looks at the whole row, but few tokens are
// kept of it, and those are near its top. A kernel of its own, because such rules in the
// plain one made every draw 2 to 5 % slower.
#pragma once

#include "sampler/device/kernels/sample_kernel.cuh"
#include "select/cuda/typical_guess.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostDropped = 14;  // from the top, as long as the list holds k more

constexpr semantics::RuleSet kRulesOfTypicalTop = semantics::Rules(
    semantics::Filter::kTypical, semantics::Filter::kTopK, semantics::Filter::kTopP,
    semantics::Filter::kMinPLast, semantics::Filter::kXtc);

struct DrawWithTypical {
  static constexpr bool kHasOwnRows = true;
  static constexpr bool kGuesses = true;

  __device__ static bool IsOwn(const SelectParams& params) {
    return Has(semantics::RulesOf(params), semantics::Filter::kTypical);
  }

  __device__ static TopPlan PlanOf(const SelectParams& params, int vocab, int elements) {
    if (!IsOwn(params)) return PlanOfTop(params, vocab, elements);
    const semantics::RuleSet rules = semantics::RulesOf(params);
    const bool is_of_top = IsWithin(rules, kRulesOfTypicalTop) &&
                           Has(rules, semantics::Filter::kTopK) && params.top_k <= kMostTopK &&
                           !IsJoint(rules, params.profile);
    if (!is_of_top) return {0, false};
    return PlanOfTop({.top_k = params.top_k + kMostDropped}, vocab, elements);
  }

  // In memory that no row with a list needs.
  template <bool kPatched>
  __device__ static UnlistedMoments<kPatched> MomentsOf(const SelectParams& params) {
    static_assert(sizeof(MomentsMemory) <= sizeof(Boundary));
    return {reinterpret_cast<MomentsMemory&>(MemoryOfBlock().boundary), IsOwn(params)};
  }

  // The result by the read that lists the top, which is all that most rows need. After ListTop, by
  // all blocks; the first thread of the first block has the result. Not inline, as
  // SampleFromList.
  template <bool kPatched>
  static __device__ __noinline__ TokenResult Guess(const SampleArgument& argument, ListedTop top,
                                                   const UnlistedMoments<kPatched> moments,
                                                   int patches) {
    SampleMemory& memory = MemoryOfBlock();
    const Team team(memory.team);
    TokenResult result;
    result.id = kUndecided;
    if (team.rank() != 0 || top.size <= 0) return result;
    // A block may patch a token that another one has seen, which only its own threshold shows.
    if (kPatched && !top.is_of_one_threshold) return result;
    // A list that was made again left out tokens that no thread has added up.
    uint32_t threshold = memory.first.list.threshold;
    const bool is_again =
        team.blocks() == 1 && threshold != semantics::OrderKey(moments.threshold());
    if (is_again) return result;
    const bool is_long = top.size > team.threads();
    if (is_long) {
      const ShortTop first = ShortenTop(team.Block(), memory.first.list, top.size,
                                        memory.plan.needed, moments.memory(), moments.unit());
      if (first.size > team.threads()) return result;
      top.size = first.size;
      top.has_all = false;
      threshold = first.threshold;
    }
    static_assert(sizeof(TypicalTopMemory) <= sizeof memory.first.find);
    const TypicalGuess<kPatched> guess{moments,
                                       reinterpret_cast<TypicalTopMemory&>(memory.first.find),
                                       team,
                                       memory.start.params.typical_p,
                                       argument.rows.vocab,
                                       patches,
                                       threshold,
                                       is_long};
    return SampleFromTop(team, memory, top, memory.plan, argument, guess);
  }

  // The result where Guess has none. By all blocks, as Guess.
  template <DType kDType, bool kPatched>
  static __device__ __noinline__ TokenResult Sample(const SampleArgument& argument, int row,
                                                    const ListedTop top) {
    SampleMemory& memory = MemoryOfBlock();
    const Team team(memory.team);
    static_assert(sizeof(TypicalMemory) <= sizeof memory.first.find);
    const auto slice = [&] {
      if constexpr (kPatched) {
        return TeamRow<kDType, true>::SliceOf(team, argument.rows, row);
      } else {
        return VectorSlice<kDType>(team, argument.rows, row);
      }
    }();
    const TypicalBound bound = BoundTypical(
        team, *reinterpret_cast<TypicalMemory*>(&memory.first.find), memory.first.list,
        [&](auto visit) { ForEachValue(slice, visit); }, memory.start.scales.filter,
        memory.start.params.typical_p);
    TokenResult result;
    result.id = kUndecided;
    if (team.rank() == 0 && top.size > 0 && bound.mean >= 0) {
      result = SampleFromTop(team, memory, top, memory.plan, argument, bound);
    }
    return result;
  }
};

}  // namespace
}  // namespace sluice::cuda
