#include "head/certified/row_certificate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "semantics/adjust/mask.h"
#include "semantics/row_status.h"

namespace sluice {
namespace {

using semantics::Infinity;
using semantics::Token;

constexpr int64_t kBlock = kTileRows;  // the arrays are whole tiles
constexpr int64_t kAhead = 8;          // rows that are fetched before they are needed

// Calls found(i) for every i below size that holds; `holds` is made of vectors, so most blocks cost
// one branch.
template <typename Holds, typename Found>
void ForEachThat(int64_t size, const Holds& holds, const Found& found) {
  for (int64_t begin = 0; begin < size; begin += kBlock) {
    int any = 0;
    for (int64_t i = begin; i < begin + kBlock; ++i) any |= holds(i) ? 1 : 0;
    if (any == 0) continue;
    for (int64_t i = begin; i < std::min(begin + kBlock, size); ++i) {
      if (holds(i)) found(i);
    }
  }
}

bool Comes(const Token& a, const Token& b) { return semantics::Before(a, b); }

}  // namespace

RowCertificate::RowCertificate(const HeadSource& head, const RowSource& row,
                               const RowMemory& memory, int64_t budget)
    : head_(head.dense),
      planes_(head.planes),
      hidden_(row.hidden),
      state_(row.state),
      bitmask_(row.bitmask),
      dense_(head.table),
      score_(head.score),
      memory_(memory),
      adjust_(row.adjust),
      first_budget_(budget),
      budget_(budget) {}

int64_t RowCertificate::AllowedCount(const int32_t* bitmask, int64_t vocab) {
  int64_t count = 0;
  for (int64_t w = 0; w < vocab / 32; ++w) {
    count += std::popcount(static_cast<uint32_t>(bitmask[w]));
  }
  for (int64_t id = vocab / 32 * 32; id < vocab; ++id) {
    count += semantics::BitmaskAllows(bitmask, id) ? 1 : 0;
  }
  return count;
}

// Masked tokens and the rows that fill up the last tile are -inf, for certain.
void RowCertificate::Seal() {
  const Intervals& of = memory_.intervals;
  for (int64_t v = planes_.vocab; v < planes_.tiles() * kTileRows; ++v) {
    of.scores[v] = -Infinity();
    of.widths[v] = 0.0f;
  }
  if (bitmask_ == nullptr) return;
  for (int64_t begin = 0; begin < planes_.vocab; begin += 32) {
    if (bitmask_[begin / 32] == -1) continue;
    for (int64_t v = begin; v < std::min(begin + 32, planes_.vocab); ++v) {
      if (semantics::BitmaskAllows(bitmask_, v)) continue;
      of.scores[v] = -Infinity();
      of.widths[v] = 0.0f;
    }
  }
}

// The interval of what the row makes of the logit. One that loses an end by it has to be computed.
void RowCertificate::AdjustInterval(int32_t id, const semantics::TokenAdjust::OfToken& token) {
  float& score = memory_.intervals.scores[id];
  float& width = memory_.intervals.widths[id];
  if (score == -Infinity() || !(width < Infinity())) return;
  const float lower = adjust_.Adjusted(score - width, token);
  const float upper = adjust_.Adjusted(score + width, token);
  score = lower + 0.5f * (upper - lower);
  const float half = std::max(upper - score, score - lower);
  // Rounded up: score -+ width reaches both ends before its own rounding, which keeps that.
  width = half == 0.0f ? 0.0f : std::nextafter(half, Infinity());
}

float RowCertificate::Compute(int32_t id) {
  if (!IsExact(id)) {
    float logit;
    dense_.project_some(head_, hidden_, {&id, 1}, &logit);
    memory_.intervals.scores[id] = adjust_.Adjusted(logit, adjust_.Find(id));
    memory_.intervals.widths[id] = 0.0f;
    ++survivors_;
  }
  return memory_.intervals.scores[id];
}

void RowCertificate::ComputeListed(int64_t count) {
  for (int64_t i = 0; i < count; ++i) Compute(memory_.ids[i]);
}

bool RowCertificate::Start() {
  if (planes_.low_codes != nullptr) {
    std::memset(memory_.is_refined, 0, static_cast<size_t>(planes_.vocab));
  }
  Seal();
  adjust_.ForEach([&](int32_t id, const semantics::TokenAdjust::OfToken& token) {
    if (memory_.scores_before != nullptr) {
      memory_.scores_before[id] = memory_.intervals.scores[id];
    }
    AdjustInterval(id, token);
  });
  // An interval without an end: a sum that may overflow.
  const float* const widths = memory_.intervals.widths;
  int64_t listed = 0;
  ForEachThat(
      planes_.vocab, [&](int64_t v) { return !(widths[v] < Infinity()); },
      [&](int64_t v) { memory_.ids[listed++] = static_cast<int32_t>(v); });
  if (listed > first_budget_) return false;
  for (int64_t i = 0; i < listed; ++i) {
    const float x = Compute(memory_.ids[i]);
    if (semantics::IsNan(x)) {
      status_ = semantics::Worse(status_, RowStatus::kNanInput);
    } else if (x == Infinity()) {
      status_ = semantics::Worse(status_, RowStatus::kPosInfInput);
    }
  }
  // The remaining tokens are finite.
  bool has_support = false;
  const float* const scores = memory_.intervals.scores;
  for (int64_t v = 0; v < planes_.vocab && !has_support; ++v) {
    has_support = !(scores[v] == -Infinity());
  }
  if (!has_support) status_ = semantics::Worse(status_, RowStatus::kEmptySupport);
  return true;
}

void RowCertificate::ComputeAllowed() {
  int64_t size = 0;
  for (int64_t v = 0; v < planes_.vocab; ++v) {
    if (bitmask_ != nullptr && !semantics::BitmaskAllows(bitmask_, v)) continue;
    const auto id = static_cast<int32_t>(v);
    float x;
    dense_.project_some(head_, hidden_, {&id, 1}, &x);
    x = adjust_.Adjusted(x, adjust_.Find(id));
    ++survivors_;
    if (semantics::IsNan(x)) {
      status_ = semantics::Worse(status_, RowStatus::kNanInput);
    } else if (x == Infinity()) {
      status_ = semantics::Worse(status_, RowStatus::kPosInfInput);
    } else if (x != -Infinity()) {
      memory_.tokens[size++] = {x, id};
    }
  }
  if (size == 0) status_ = semantics::Worse(status_, RowStatus::kEmptySupport);
  std::sort(memory_.tokens, memory_.tokens + size, Comes);
  allowed_ = {memory_.tokens, size};
  has_allowed_ = true;
}

// A row's low codes are a few lines somewhere: without this their latency is the time.
void RowCertificate::PrefetchLow(int32_t id) const {
  const std::byte* const codes = planes_.LowCodes(id);
  const uint16_t* const scales = planes_.Scales(id / kTileRows);
  for (int64_t g = 0; g < planes_.groups; ++g) {
    __builtin_prefetch(codes + g * kRowGroupBytes);
    __builtin_prefetch(scales + g * kTileRows);
  }
}

void RowCertificate::Refine(int32_t id) {
  if (planes_.low_codes == nullptr || IsExact(id) || memory_.is_refined[id] != 0) return;
  memory_.is_refined[id] = 1;
  ++refined_;
  const semantics::TokenAdjust::OfToken token = adjust_.Find(id);
  if (!token.IsNothing()) memory_.intervals.scores[id] = memory_.scores_before[id];
  score_.refine(planes_, state_, id, memory_.intervals);
  if (!token.IsNothing()) AdjustInterval(id, token);
  // The narrower interval need not lie in the wider one, so an end may be lost only now.
  if (!(memory_.intervals.widths[id] < Infinity())) Compute(id);
}

bool RowCertificate::RefineFrom(float least) {
  if (planes_.low_codes == nullptr) return false;
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  const int64_t before = refined_;
  const int64_t listed = ListSurvivors(
      [&](int64_t v) { return widths[v] != 0.0f && !(scores[v] + widths[v] < least); });
  RefineListed(listed);
  return refined_ > before;
}

void RowCertificate::ComputeFrom(float least) {
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  ComputeListed(ListSurvivors(
      [&](int64_t v) { return widths[v] != 0.0f && !(scores[v] + widths[v] < least); }));
}

bool RowCertificate::RaiseBudget() {
  const int64_t budget = budget_;
  budget_ = 2 * first_budget_;
  return budget_ > budget;
}

bool RowCertificate::ComputeLargest(int64_t count) {
  if (count <= 0) return false;
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  const int64_t largest = Largest(
      count, [&](int64_t v) { return widths[v] != 0.0f ? scores[v] + widths[v] : -Infinity(); });
  ComputeListed(largest);
  return largest > 0;
}

float RowCertificate::LargestOpen() const {
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  float largest = -Infinity();
  ForEachThat(
      planes_.vocab,
      [&](int64_t v) { return widths[v] != 0.0f && scores[v] + widths[v] > largest; },
      [&](int64_t v) { largest = scores[v] + widths[v]; });
  return largest;
}

CertifiedTokens RowCertificate::ComputedAbove(float x) {
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  int64_t size = 0;
  ForEachThat(
      planes_.vocab, [&](int64_t v) { return widths[v] == 0.0f && scores[v] > x; },
      [&](int64_t v) { memory_.tokens[size++] = {scores[v], static_cast<int32_t>(v)}; });
  std::sort(memory_.tokens, memory_.tokens + size, Comes);
  const float least = x == -Infinity() ? x : std::nextafter(x, Infinity());
  return {memory_.tokens, size, least};
}

// The ids of the k largest keys, or of all that are not -inf, in no order.
template <typename KeyOf>
int64_t RowCertificate::Largest(int64_t k, const KeyOf& key_of) {
  Token* const heap = memory_.tokens;  // the last in the order on top
  int64_t size = 0;
  float least = -Infinity();
  ForEachThat(
      planes_.vocab, [&](int64_t v) { return key_of(v) > least; },
      [&](int64_t v) {
        const Token token{key_of(v), static_cast<int32_t>(v)};
        if (size == k) {
          if (!(token.x > least)) return;
          std::pop_heap(heap, heap + size, Comes);
          heap[size - 1] = token;
        } else {
          heap[size++] = token;
        }
        std::push_heap(heap, heap + size, Comes);
        if (size == k) least = heap[0].x;
      });
  for (int64_t i = 0; i < size; ++i) memory_.ids[i] = heap[i].id;
  return size;
}

void RowCertificate::RefineListed(int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) PrefetchLow(memory_.ids[i + kAhead]);
    Refine(memory_.ids[i]);
  }
}

template <typename MayMatter>
int64_t RowCertificate::ListSurvivors(const MayMatter& may_matter) {
  int64_t listed = 0;
  ForEachThat(planes_.vocab, may_matter,
              [&](int64_t v) { memory_.ids[listed++] = static_cast<int32_t>(v); });
  return listed;
}

// may_matter(v) is evaluated again for intervals that have become narrower.
template <typename MayMatter>
bool RowCertificate::ComputeSurvivors(const MayMatter& may_matter, int64_t& listed) {
  listed = ListSurvivors(may_matter);
  if (planes_.low_codes != nullptr) {
    RefineListed(listed);
    listed = ListSurvivors(may_matter);
  }
  int64_t unknown = 0;
  for (int64_t i = 0; i < listed; ++i) unknown += IsExact(memory_.ids[i]) ? 0 : 1;
  if (unknown > first_budget_) return false;
  ComputeListed(listed);
  return true;
}

CertifiedTokens RowCertificate::Sorted(int64_t listed, float least) {
  const float* const scores = memory_.intervals.scores;
  int64_t size = 0;
  for (int64_t i = 0; i < listed; ++i) {
    const int32_t id = memory_.ids[i];
    if (scores[id] >= least && scores[id] > -Infinity()) memory_.tokens[size++] = {scores[id], id};
  }
  std::sort(memory_.tokens, memory_.tokens + size, Comes);
  return {memory_.tokens, size, least};
}

std::optional<CertifiedTokens> RowCertificate::From(float least) {
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  // Not `>=`: what cannot be compared survives.
  const auto may_matter = [&](int64_t v) { return !(scores[v] + widths[v] < least); };
  int64_t listed = 0;
  if (!ComputeSurvivors(may_matter, listed)) return std::nullopt;
  NoteMargin(least - LargestOpen());
  return Sorted(listed, least);
}

std::optional<CertifiedTokens> RowCertificate::Top(int64_t k) {
  if (k > first_budget_) return std::nullopt;
  const float* const scores = memory_.intervals.scores;
  const int64_t largest = Largest(k, [&](int64_t v) { return scores[v]; });
  ComputeListed(largest);
  float least = Infinity();
  for (int64_t i = 0; i < largest; ++i) {
    least = std::min(least, memory_.intervals.scores[memory_.ids[i]]);
  }
  if (largest < k) return Sorted(largest, -Infinity());  // all there are
  return From(least);
}

std::optional<RowCertificate::Bottom> RowCertificate::Last() {
  const float* const scores = memory_.intervals.scores;
  const float* const widths = memory_.intervals.widths;
  float smallest = Infinity();
  for (int64_t v = 0; v < planes_.vocab; ++v) {
    const float score = scores[v] == -Infinity() ? Infinity() : scores[v];
    smallest = score < smallest ? score : smallest;
  }
  int32_t last = -1;
  ForEachThat(
      planes_.vocab, [&](int64_t v) { return scores[v] == smallest; },
      [&](int64_t v) { last = static_cast<int32_t>(v); });
  const float most = Compute(last);
  const auto may_matter = [&](int64_t v) {
    return !(scores[v] - widths[v] > most) && scores[v] != -Infinity();
  };
  int64_t listed = 0;
  if (!ComputeSurvivors(may_matter, listed)) return std::nullopt;
  Bottom bottom = {Infinity(), 0, 0};
  for (int64_t i = 0; i < listed; ++i) {
    const float x = scores[memory_.ids[i]];
    if (x == -Infinity() || x > bottom.value) continue;
    bottom.ties = x == bottom.value ? bottom.ties + 1 : 1;
    bottom.value = x;
  }
  for (int64_t v = 0; v < planes_.vocab; ++v) bottom.support += scores[v] == -Infinity() ? 0 : 1;
  return bottom;
}

}  // namespace sluice
