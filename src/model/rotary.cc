#include "model/rotary.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "model/rotary_math.h"

namespace sluice::model {
namespace {

constexpr double kMostContext = 1e8;
constexpr double kPi = std::numbers::pi;

double Ln(double x) { return Log2Exactly(x) * std::numbers::ln2; }

// theta^(2i / head_dim) for pair i.
std::vector<float> Periods(double theta, int64_t head_dim) {
  std::vector<float> periods(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < periods.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    periods[i] = static_cast<float>(Exp2Exactly(exponent * Log2Exactly(theta)));
  }
  return periods;
}

// The slow pairs by the factor, the fast ones not, and a ramp between.
void ScaleLikeLlama3(const JsonFields& scaling, int64_t context, std::vector<float>& frequencies) {
  const float factor = scaling.Number("factor", std::nullopt, 1.0, 1e6);
  const float low = scaling.Number("low_freq_factor", std::nullopt, 1e-3, 1e6);
  const float high = scaling.Number("high_freq_factor", std::nullopt, 1e-3, 1e6);
  if (!(high > low)) {
    scaling.Refuse("high_freq_factor", ToText(high),
                   std::string("more than low_freq_factor, ").append(ToText(low)));
  }
  const float original = scaling.Number("original_max_position_embeddings",
                                        static_cast<double>(context), 1.0, kMostContext);
  for (float& frequency : frequencies) {
    const float wave = static_cast<float>(2 * kPi) / frequency;
    if (wave < original / high) continue;
    const float slow = frequency / factor;
    if (wave > original / low) {
      frequency = slow;
    } else {
      const float share = (original / wave - low) / (high - low);
      frequency = (1.0f - share) * slow + share * frequency;
    }
  }
}

// YaRN (arXiv 2309.00071): pairs that turn often keep their frequency, those that turn less than
// beta_slow times in the original context are slowed down by the factor.
void ScaleLikeYarn(const JsonFields& scaling, double theta, int64_t head_dim, int64_t context,
                   Rotary& rotary) {
  const double original = scaling.Number("original_max_position_embeddings",
                                         static_cast<double>(context), 1.0, kMostContext);
  const float factor = scaling.Number("factor", static_cast<double>(context) / original, 1.0, 1e6);
  const auto magnitude = [&](double scale, double m) {
    return scale <= 1.0 ? 1.0 : 0.1 * m * Ln(scale) + 1.0;
  };
  const double m = scaling.Number("mscale", 0.0, 0.0, 1e3);
  const double m_all = scaling.Number("mscale_all_dim", 0.0, 0.0, 1e3);
  const double inferred =
      m > 0 && m_all > 0 ? magnitude(factor, m) / magnitude(factor, m_all) : magnitude(factor, 1.0);
  rotary.magnitude = scaling.Number("attention_factor", inferred, 1e-6, 1e6);

  const auto pair_that_turns = [&](double times) {
    return static_cast<double>(head_dim) * Ln(original / (times * 2 * kPi)) / (2 * Ln(theta));
  };
  double first = pair_that_turns(scaling.Number("beta_fast", 32.0, 1e-3, 1e6));
  double last = pair_that_turns(scaling.Number("beta_slow", 1.0, 1e-3, 1e6));
  if (scaling.Flag("truncate", true)) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(head_dim - 1));
  if (first == last) last += 0.001;
  const std::vector<float> periods = Periods(theta, head_dim);
  for (size_t i = 0; i < periods.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(first)) / static_cast<float>(last - first),
        0.0f, 1.0f);
    const float fast_share = 1.0f - ramp;
    rotary.frequencies[i] =
        1.0f / (factor * periods[i]) * (1.0f - fast_share) + 1.0f / periods[i] * fast_share;
  }
}

}  // namespace

void Rotary::AnglesAt(int64_t position, float* cosines, float* sines) const {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const Angle angle = AngleOf(static_cast<float>(position) * frequencies[i]);
    cosines[i] = static_cast<float>(angle.cosine) * magnitude;
    sines[i] = static_cast<float>(angle.sine) * magnitude;
  }
}

Rotary MakeRotary(const JsonFields* scaling, double theta, int64_t head_dim, int64_t context) {
  Rotary rotary;
  rotary.frequencies = Periods(theta, head_dim);
  for (float& f : rotary.frequencies) f = 1.0f / f;
  if (scaling == nullptr) return rotary;

  // "type" is the older name.
  const std::string kind = scaling->Text("rope_type", scaling->Text("type", "default"));
  const float turned_share = scaling->Number("partial_rotary_factor", 1.0, 0.0, 1.0);
  if (turned_share != 1.0f) scaling->Refuse("partial_rotary_factor", ToText(turned_share), "1");
  if (kind == "linear") {
    const float factor = scaling->Number("factor", std::nullopt, 1.0, 1e6);
    for (float& frequency : rotary.frequencies) frequency /= factor;
  } else if (kind == "llama3") {
    ScaleLikeLlama3(*scaling, context, rotary.frequencies);
  } else if (kind == "yarn") {
    ScaleLikeYarn(*scaling, theta, head_dim, context, rotary);
  } else if (kind != "default") {
    scaling->Refuse("rope_type", ToText(kind), "default, linear, llama3, yarn");
  }
  return rotary;
}

}  // namespace sluice::model
