// Selection as the text of the definition says it, written from that text and not from the code: a
// flag for every token where the library moves the ends of an interval. It shares with the library
// the weight of a token, the Philox block and the types of the interface, nothing else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "semantics/draw/philox.h"
#include "semantics/weight.h"
#include "sluice/select.hpp"

namespace sluice::test {

__extension__ typedef unsigned __int128 Wide;

struct OracleToken {
  float x;
  int32_t id;
  float t;
  uint64_t w;
  bool kept;
};

struct OracleAnswer {
  Cut cut;
  CutMass mass;
  std::vector<int32_t> ids;  // kept, ascending
  bool is_interval = true;
};

inline uint64_t Fixed(float share, int bits) {  // floor(share * 2^bits)
  return static_cast<uint64_t>(std::floor(std::ldexp(static_cast<double>(share), bits)));
}

// By Newton's iteration from above.
inline Wide IntegerRoot(Wide value) {
  if (value == 0) return 0;
  Wide root = Wide{1} << 64;
  for (;;) {
    const Wide next = (root + value / root) / 2;
    if (next >= root) return root;
    root = next;
  }
}

class Oracle {
 public:
  Oracle(const std::vector<float>& row, const SelectParams& params, const NoiseKey& key)
      : row_(row), p_(params), key_(key) {}

  OracleAnswer Answer() {
    OracleAnswer answer;
    answer.cut.status = Status();
    if (answer.cut.status != RowStatus::kOk) return answer;
    SortTokens();
    if (p_.temperature == 0.0f) {
      Keep([this](const OracleToken& token) { return &token == &tokens_[0]; });
      answer.mass.total = Mass();
    } else {
      RunFilters(answer.mass);
    }
    answer.mass.kept = Mass();
    DescribeSet(answer);
    return answer;
  }

 private:
  using Test = std::function<bool(const OracleToken&)>;

  RowStatus Status() const {
    auto in = [](float value, float low, float high) { return value >= low && value <= high; };
    const bool valid = in(p_.temperature, 0, 2) && p_.top_k >= -1 && p_.top_p > 0 &&
                       in(p_.top_p, 0, 1) && in(p_.min_p, 0, 1) && in(p_.top_n_sigma, 0, 16) &&
                       p_.typical_p > 0 && in(p_.typical_p, 0, 1) && in(p_.xtc_probability, 0, 1) &&
                       in(p_.xtc_threshold, 0, 1);
    if (!valid) return RowStatus::kBadParam;
    auto any = [this](auto is) { return std::any_of(row_.begin(), row_.end(), is); };
    constexpr float kInf = std::numeric_limits<float>::infinity();
    if (any([](float x) { return std::isnan(x); })) return RowStatus::kNanInput;
    if (any([](float x) { return x == kInf; })) return RowStatus::kPosInfInput;
    return any([](float x) { return x > -kInf; }) ? RowStatus::kOk : RowStatus::kEmptySupport;
  }

  void SortTokens() {
    for (size_t id = 0; id < row_.size(); ++id) {
      if (std::isinf(row_[id])) continue;
      tokens_.push_back({row_[id], static_cast<int32_t>(id), 0, 0, true});
    }
    std::stable_sort(tokens_.begin(), tokens_.end(),
                     [](const OracleToken& a, const OracleToken& b) { return a.x > b.x; });
    float temperature = std::max(p_.temperature, 0.01f);
    if (p_.profile.temperature_stage == TemperatureStage::kLast) temperature = 1.0f;
    const float c = 0x1.715476p+0f / temperature;
    for (OracleToken& token : tokens_) {
      const float d = token.x - tokens_[0].x;
      token.t = d * c;
      token.w = semantics::Weight(token.x, tokens_[0].x, c);
    }
  }

  void Keep(const Test& test) {
    for (OracleToken& token : tokens_) token.kept = token.kept && test(token);
  }
  uint64_t Mass() const {
    uint64_t mass = 0;
    for (const OracleToken& token : tokens_) mass += token.kept ? token.w : 0;
    return mass;
  }
  uint64_t Target(float p, uint64_t total) const {  // ceil(floor(p * 2^32) * total / 2^32)
    return static_cast<uint64_t>((Wide{Fixed(p, 32)} * total + 0xffffffffu) >> 32);
  }

  void RunFilters(CutMass& mass) {
    const Profile& profile = p_.profile;
    if (profile.min_p_stage == MinPStage::kBeforeTopK) MinP();
    TopNSigma();
    Typical();
    const std::vector<OracleToken> survivors = tokens_;
    TopK();
    if (profile.top_k_top_p == TopKTopP::kJoint) {
      const std::vector<OracleToken> by_rank = std::exchange(tokens_, survivors);
      TopP(mass);
      for (size_t i = 0; i < tokens_.size(); ++i) {
        tokens_[i].kept = tokens_[i].kept && by_rank[i].kept;
      }
    } else {
      TopP(mass);
    }
    if (profile.min_p_stage == MinPStage::kLast) MinP();
    Xtc();
  }

  // Keep iff W >= floor(min_p * 2^40); when no survivor reaches that, the first of them stays.
  void MinP() {
    const uint64_t least = Fixed(p_.min_p, 40);
    const auto first = std::find_if(tokens_.begin(), tokens_.end(),
                                    [](const OracleToken& token) { return token.kept; });
    Keep([&](const OracleToken& token) { return token.w >= least || &token == &*first; });
  }

  void TopNSigma() {
    if (p_.top_n_sigma == 0) return;
    auto distance = [this](const OracleToken& token) {
      const float d = tokens_[0].x - token.x;
      return static_cast<uint64_t>(
          std::min(std::nearbyint(static_cast<double>(d) * 4096.0), 1048576.0));
    };
    Wide n = 0;
    Wide s1 = 0;
    Wide s2 = 0;
    for (const OracleToken& token : tokens_) {
      if (!token.kept) continue;
      const Wide e = distance(token);
      n += 1;
      s1 += e;
      s2 += e * e;
    }
    const Wide sigmas =
        static_cast<Wide>(std::nearbyint(static_cast<double>(p_.top_n_sigma) * 256));
    const Wide bound = IntegerRoot(sigmas * sigmas * (n * s2 - s1 * s1)) / (n * 256);
    Keep([&](const OracleToken& token) { return distance(token) <= bound; });
  }

  void Typical() {
    if (p_.typical_p == 1) return;
    Keep([](const OracleToken& token) { return token.w > 0; });
    auto surprise = [](const OracleToken& token) {
      return static_cast<int64_t>(std::nearbyint(static_cast<double>(-token.t) * 4096.0));
    };
    Wide weighted = 0;
    Wide weights = 0;
    for (const OracleToken& token : tokens_) {
      if (!token.kept) continue;
      weighted += Wide{token.w >> 16} * static_cast<Wide>(surprise(token));
      weights += token.w >> 16;
    }
    const int64_t mean = static_cast<int64_t>(weighted / weights);
    auto key = [&](const OracleToken& token) { return std::abs(surprise(token) - mean); };

    std::vector<OracleToken> by_key;
    std::copy_if(tokens_.begin(), tokens_.end(), std::back_inserter(by_key),
                 [](const OracleToken& token) { return token.kept; });
    std::sort(by_key.begin(), by_key.end(),
              [&](const OracleToken& a, const OracleToken& b) { return key(a) < key(b); });
    const uint64_t target = Target(p_.typical_p, Mass());
    uint64_t mass = 0;
    int64_t last_key = 0;
    for (const OracleToken& token : by_key) {  // the least key whose tokens hold the target
      mass += token.w;
      last_key = key(token);
      if (mass >= target) break;
    }
    Keep([&](const OracleToken& token) { return key(token) <= last_key; });
  }

  // `count` tokens that are kept so far, and with ties = all those equal to the last of them.
  void KeepFirst(int64_t count) {
    float boundary = 0;
    int64_t rank = 0;
    for (const OracleToken& token : tokens_) {
      if (token.kept && ++rank == count) boundary = token.x;
    }
    rank = 0;
    Keep([&](const OracleToken& token) {
      return ++rank <= count || (p_.profile.ties == Ties::kAll && token.x == boundary);
    });
  }

  void TopK() {
    const auto kept = std::count_if(tokens_.begin(), tokens_.end(),
                                    [](const OracleToken& token) { return token.kept; });
    if (p_.top_k > 0 && p_.top_k < kept) KeepFirst(p_.top_k);
  }

  void TopP(CutMass& mass) {
    mass.total = Mass();
    if (p_.top_p == 1) return;
    const uint64_t target = Target(p_.top_p, mass.total);
    const bool inclusive = p_.profile.top_p_boundary == TopPBoundary::kInclusive;
    uint64_t before = 0;
    int64_t count = 0;
    for (const OracleToken& token : tokens_) {
      if (!token.kept) continue;
      if (count == 0 || (inclusive ? before <= target : before < target)) ++count;
      before += token.w;
    }
    KeepFirst(count);

    const uint64_t through = Mass();
    const auto last = std::find_if(tokens_.rbegin(), tokens_.rend(),
                                   [](const OracleToken& token) { return token.kept; });
    auto distance = [target](uint64_t m) { return m > target ? m - target : target - m; };
    mass.margin = std::min(distance(through), distance(through - last->w));
  }

  // Drop all but the last of the tokens at or above the threshold. A threshold below 2^-32 acts as
  // 2^-32, so that the token that remains has a weight.
  void Xtc() {
    const semantics::Block coin =
        semantics::Philox(key_.seed, key_.position, 0, 4 | key_.choice << 8, 0);
    if (coin.word[0] >= Fixed(p_.xtc_probability, 32)) return;
    const Wide least = Wide{std::max<uint64_t>(Fixed(p_.xtc_threshold, 32), 1)} * Mass();
    auto above = [&](const OracleToken& token) { return Wide{token.w} << 32 >= least; };
    int64_t s = 0;
    for (const OracleToken& token : tokens_) s += token.kept && above(token) ? 1 : 0;
    int64_t rank = 0;
    Keep([&](const OracleToken&) { return s < 2 || ++rank >= s; });
  }

  // The Cut, literally: the values at the two ends of the set, and how many of the tokens equal to
  // them it takes.
  void DescribeSet(OracleAnswer& answer) const {
    std::vector<size_t> ranks;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!tokens_[i].kept) continue;
      ranks.push_back(i);
      answer.ids.push_back(tokens_[i].id);
    }
    answer.is_interval = ranks.back() - ranks.front() + 1 == ranks.size();
    std::sort(answer.ids.begin(), answer.ids.end());
    const OracleToken& first = tokens_[ranks.front()];
    const OracleToken& last = tokens_[ranks.back()];
    Cut& cut = answer.cut;
    cut.count = static_cast<int32_t>(ranks.size());
    cut.lower = last.x == 0 ? 0.0f : last.x;  // a zero boundary has no sign
    if (ranks.front() > 0) cut.upper = first.x == 0 ? 0.0f : first.x;
    for (const OracleToken& token : tokens_) {
      if (token.x == cut.upper && token.id < first.id) ++cut.ties_dropped;
      if (token.x == cut.lower && token.id <= last.id) ++cut.ties_kept;
    }
  }

  const std::vector<float>& row_;
  SelectParams p_;
  NoiseKey key_;
  std::vector<OracleToken> tokens_;  // by the total order
};

}  // namespace sluice::test
