#include "bench/support/rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "semantics/draw/philox.h"

namespace sluice::bench {
namespace {

constexpr double kBodyMean = -2.0;
constexpr double kBodyDeviation = 1.6;
constexpr int64_t kOutliers = 40;
constexpr double kShare = 0.9;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Numbers of one row, in order; each row has a stream of its own.
class Random {
 public:
  Random(Distribution distribution, uint32_t row)
      : distribution_(static_cast<uint32_t>(distribution)), row_(row) {}

  double Uniform() {  // (0, 1)
    if (used_ == 4) {
      block_ = semantics::Philox(kSeed, counter_++, row_, distribution_, 0);
      used_ = 0;
    }
    return (static_cast<double>(block_.word[used_++]) + 0.5) * 0x1p-32;
  }
  double Normal() {  // Box and Muller
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(Uniform()));
    const double angle = 2.0 * std::numbers::pi * Uniform();
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }
  int64_t Below(int64_t limit) {
    return static_cast<int64_t>(Uniform() * static_cast<double>(limit));
  }

 private:
  static constexpr uint64_t kSeed = 0x51C1CE;

  uint32_t distribution_;
  uint32_t row_;
  uint32_t counter_ = 0;
  semantics::Block block_ = {};
  int used_ = 4;
  double spare_ = 0.0;
  bool has_spare_ = false;
};

std::vector<float> NormalRow(int64_t vocab, double mean, double deviation, Random& random) {
  std::vector<float> row(static_cast<size_t>(vocab));
  for (float& x : row) x = static_cast<float>(mean + deviation * random.Normal());
  return row;
}

// How far each outlier lies below the shift, ascending.
std::vector<double> OutlierOffsets(Distribution distribution, int64_t count, Random& random) {
  std::vector<double> offsets;
  double offset = 0.0;
  const double gap = 0.8 + 1.4 * random.Uniform();
  for (int64_t i = 0; i < count; ++i) {
    // Peaked: so far apart that the last ones lie far below the body. Else one unit of spread.
    const double normal = random.Normal();
    offsets.push_back(distribution == Distribution::kPeaked ? offset : normal);
    offset += gap * (0.5 + random.Uniform());
  }
  std::sort(offsets.begin(), offsets.end());
  return offsets;
}

// The size of the nucleus of a body and outliers, for any shift of the outliers. Only the largest
// kHead tokens of the body are read: no nucleus in use reaches beyond.
class Nucleus {
 public:
  // positions: where in the body the outliers will stand.
  Nucleus(std::span<const float> body, std::span<const int64_t> positions,
          std::span<const double> offsets)
      : offsets_(offsets), head_(body.begin(), body.end()) {
    for (const int64_t position : positions) head_[static_cast<size_t>(position)] = kMinusInfinity;
    for (const float x : head_) body_mass_ += std::exp(static_cast<double>(x));
    const auto end = head_.begin() + static_cast<int64_t>(std::min(head_.size(), kHead));
    std::partial_sort(head_.begin(), end, head_.end(), std::greater<>());
    head_.erase(end, head_.end());
  }

  int64_t Size(double shift) const {
    double total = body_mass_;
    for (const double offset : offsets_) total += std::exp(shift - offset);
    double mass = 0.0;
    size_t h = 0;
    size_t o = 0;
    while (mass < kShare * total && h < head_.size()) {
      const double next = head_[h];
      const bool takes_outlier = o < offsets_.size() && shift - offsets_[o] >= next;
      mass += std::exp(takes_outlier ? shift - offsets_[o++] : next);
      h += takes_outlier ? 0 : 1;
    }
    return static_cast<int64_t>(h + o);
  }

  // The smallest shift with a nucleus of at most `size`: the size falls as the shift rises.
  double ShiftFor(int64_t size) const {
    double low = kBodyMean;
    double high = kBodyMean + 16.0;
    for (int step = 0; step < 30; ++step) {
      const double middle = 0.5 * (low + high);
      (Size(middle) <= size ? high : low) = middle;
    }
    return high;
  }

 private:
  static constexpr size_t kHead = 8192;

  std::span<const double> offsets_;
  std::vector<float> head_;
  double body_mass_ = 0.0;
};

std::vector<float> BodyWithOutliers(Distribution distribution, int64_t vocab, Random& random) {
  std::vector<float> row = NormalRow(vocab, kBodyMean, kBodyDeviation, random);
  const int64_t count = std::min(kOutliers, vocab / 4);
  const std::vector<double> offsets = OutlierOffsets(distribution, count, random);
  const SizeRange wanted = TargetNucleus(distribution, vocab);
  std::vector<int64_t> positions;
  while (std::ssize(positions) < count) {
    const int64_t position = random.Below(vocab);
    if (std::find(positions.begin(), positions.end(), position) == positions.end()) {
      positions.push_back(position);
    }
  }
  const Nucleus nucleus(row, positions, offsets);

  // Anywhere between the smallest and the largest shift that give the size: a real row has
  // no relation to its boundary. With room for the outliers' rounding to fp32.
  const int64_t size = wanted.low + random.Below(wanted.high - wanted.low + 1);
  const double least = nucleus.ShiftFor(size) + 1e-5;
  const double most =
      std::min(size > 1 ? nucleus.ShiftFor(size - 1) - 1e-5 : least + 1.0, least + 1.0);
  const double shift = least + random.Uniform() * std::max(0.0, most - least);
  for (int64_t i = 0; i < count; ++i) {
    const double outlier = shift - offsets[static_cast<size_t>(i)];
    row[static_cast<size_t>(positions[static_cast<size_t>(i)])] = static_cast<float>(outlier);
  }
  return row;
}

}  // namespace

std::string_view Name(Distribution distribution) {
  switch (distribution) {
    case Distribution::kPeaked:
      return "peaked";
    case Distribution::kMid:
      return "mid";
    case Distribution::kFlat:
      return "flat";
    case Distribution::kNormal:
      return "normal";
    case Distribution::kFewDistinct:
      return "few_distinct";
    case Distribution::kRamp:
      return "ramp";
    case Distribution::kMasked:
      return "masked";
  }
  return "unknown";
}

SizeRange TargetNucleus(Distribution distribution, int64_t vocab) {
  const auto of_at_most = [&](int64_t low, int64_t high) {
    return SizeRange{std::min(low, std::max<int64_t>(vocab / 32, 1)),
                     std::min(high, std::max<int64_t>(vocab / 8, 1))};
  };
  switch (distribution) {
    case Distribution::kPeaked:
      return of_at_most(1, 5);
    case Distribution::kMid:
      return of_at_most(30, 80);
    case Distribution::kFlat:
      return of_at_most(1000, 4000);
    default:
      return {0, 0};
  }
}

std::vector<float> MakeRow(Distribution distribution, int64_t vocab, uint32_t index) {
  Random random(distribution, index);
  switch (distribution) {
    case Distribution::kPeaked:
    case Distribution::kMid:
    case Distribution::kFlat:
      return BodyWithOutliers(distribution, vocab, random);
    case Distribution::kNormal:
      return NormalRow(vocab, 0.0, 1.0, random);
    case Distribution::kFewDistinct: {
      std::vector<float> row(static_cast<size_t>(vocab));
      for (float& x : row) x = static_cast<float>(random.Below(8)) * 0.5f;
      return row;
    }
    case Distribution::kRamp: {
      // Each row is as steep as the next, and moved: else all of them would be one.
      std::vector<float> row(static_cast<size_t>(vocab));
      const float start = static_cast<float>(random.Uniform());
      for (size_t i = 0; i < row.size(); ++i) {
        row[i] = start + static_cast<float>(i) * (12.0f / static_cast<float>(vocab));
      }
      return row;
    }
    case Distribution::kMasked: {
      std::vector<float> row = MakeRow(Distribution::kMid, vocab, index);
      for (float& x : row) x = random.Uniform() < 0.9 ? kMinusInfinity : x;
      row[static_cast<size_t>(random.Below(vocab))] = 1.0f;  // whatever the mask, one is left
      return row;
    }
  }
  return {};
}

int64_t NucleusSize(std::span<const float> row) {
  const double max = *std::max_element(row.begin(), row.end());
  double total = 0.0;
  for (const float x : row) total += std::exp(x - max);
  std::vector<float> sorted(row.begin(), row.end());
  // Most nuclei are small: sort on only as far as the mass needs.
  double mass = 0.0;
  size_t done = 0;
  for (size_t end = std::min<size_t>(sorted.size(), 256);;
       end = std::min(sorted.size(), 16 * end)) {
    const auto at = [&](size_t i) { return sorted.begin() + static_cast<int64_t>(i); };
    if (end < sorted.size()) std::nth_element(at(done), at(end), sorted.end(), std::greater<>());
    std::sort(at(done), at(end), std::greater<>());
    for (; done < end; ++done) {
      if (mass >= kShare * total) return static_cast<int64_t>(done);
      mass += std::exp(sorted[done] - max);
    }
    if (end == sorted.size()) return static_cast<int64_t>(end);
  }
}

uint16_t RoundToBf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float WidenBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace sluice::bench
