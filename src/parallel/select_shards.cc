#include "parallel/select_shards.h"

#include <algorithm>

namespace sluice {

using semantics::Interval;

uint64_t ShardSelection::MassAbove(float value) const {
  return row_.Sum([&](float x) { return x > value ? Weight(x) : 0; });
}

int64_t ShardSelection::EndWithTies(int64_t end, int64_t limit) const {
  return std::min(limit, row_.CountAtLeast(row_.ValueAtRank(end - 1)));
}

void ShardSelection::Typical() {
  const float last = row_.ValueAtRank(kept_.end - 1);
  auto weight = [&](float x) { return x >= last ? Weight(x) : 0; };
  auto surprise = [&](float x) { return semantics::Surprise(LogWeight(x)); };
  const uint64_t weighted = row_.Sum([&](float x) {
    return weight(x) == 0 ? 0 : (weight(x) >> 16) * static_cast<uint64_t>(surprise(x));
  });
  const uint64_t mean = weighted / row_.Sum([&](float x) { return weight(x) >> 16; });
  const uint64_t target = semantics::TargetMass(params_.typical_p, row_.Sum(weight));
  auto key = [&](float x) {
    return semantics::TypicalKey(LogWeight(x), static_cast<int64_t>(mean));
  };

  int64_t low = 0;  // the least key with tokens that hold the target lies in [low, high]
  int64_t high = int64_t{40} << 12;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const uint64_t mass =
        row_.Sum([&](float x) { return weight(x) != 0 && key(x) <= middle ? weight(x) : 0; });
    if (mass >= target && mass > 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const int64_t nearest_surprise = static_cast<int64_t>(mean) - low;
  kept_.begin =
      row_.Count([&](float x) { return weight(x) != 0 && surprise(x) < nearest_surprise; });
  kept_.end = kept_.begin + row_.Count([&](float x) { return weight(x) != 0 && key(x) <= low; });
}

void ShardSelection::TopK() {
  if (params_.top_k >= kept_.end - kept_.begin) return;
  const int64_t end = kept_.begin + params_.top_k;
  kept_.end = params_.profile.ties == Ties::kAll ? EndWithTies(end, kept_.end) : end;
}

Interval ShardSelection::Nucleus(Interval measured) const {
  const uint64_t before = MassBefore(measured.begin);
  const uint64_t target = semantics::TargetMass(params_.top_p, Mass(measured));
  const TopPBoundary boundary = params_.profile.top_p_boundary;
  auto is_kept = [&](uint64_t mass_before) {
    return semantics::TopPKeeps(mass_before, target, boundary);
  };

  // Tokens of a value are kept, all or some, iff the mass above that value is: find the largest
  // value for which it is not.
  const float top = row_.ValueAtRank(measured.begin);
  auto starts_too_late = [&](float value) {
    return value < top && !is_kept(MassAbove(value) - before);
  };
  const float dropped = ShardedRow::LargestValue(starts_too_late);
  int64_t end = starts_too_late(dropped) ? row_.CountAbove(dropped) : measured.end;
  end = std::clamp(end, measured.begin + 1, measured.end);

  // Among the tokens of the last value, those that start below the target.
  const float last = row_.ValueAtRank(end - 1);
  const int64_t first_of_ties = std::max(measured.begin, row_.CountAbove(last));
  const uint64_t mass_before_ties = MassBefore(first_of_ties) - before;
  int64_t ties = 1;
  int64_t most = end - first_of_ties;
  while (ties < most) {  // the largest count of ties with a last one that is kept
    const int64_t middle = most - (most - ties) / 2;
    if (is_kept(mass_before_ties + static_cast<uint64_t>(middle - 1) * Weight(last))) {
      ties = middle;
    } else {
      most = middle - 1;
    }
  }
  end = first_of_ties + ties;
  return {measured.begin,
          params_.profile.ties == Ties::kAll ? EndWithTies(end, measured.end) : end};
}

void ShardSelection::TopP() {
  const bool joint = params_.profile.top_k_top_p == TopKTopP::kJoint;
  kept_.end = std::min(kept_.end, Nucleus(joint ? before_top_k_ : kept_).end);
}

void ShardSelection::Xtc() {
  const semantics::uint128_t least = semantics::XtcLeast(params_.xtc_threshold, Mass(kept_));
  const int64_t above = row_.Count(
      [&](float x) { return (static_cast<semantics::uint128_t>(Weight(x)) << 32) >= least; });
  const int64_t likely = std::min(above, kept_.end) - kept_.begin;
  if (likely >= 2) kept_.begin += likely - 1;
}

Cut ShardSelection::ToCut() const {
  Cut cut;
  cut.count = static_cast<int32_t>(kept_.end - kept_.begin);
  cut.lower = row_.ValueAtRank(kept_.end - 1);
  cut.ties_kept = static_cast<int32_t>(kept_.end - row_.CountAbove(cut.lower));
  if (kept_.begin > 0) {
    cut.upper = row_.ValueAtRank(kept_.begin);
    cut.ties_dropped = static_cast<int32_t>(kept_.begin - row_.CountAbove(cut.upper));
  }
  return cut;
}

Cut ShardSelection::Select(const NoiseKey& key) {
  semantics::ApplyRules(semantics::RulesOf(params_, key), params_, *this);
  return ToCut();
}

}  // namespace sluice
