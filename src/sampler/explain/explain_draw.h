// Explain: stage 16, what a token's score or place was against the winner's.
#pragma once

#include <cstdint>
#include <vector>

#include "sampler/explain/explain_compare.h"
#include "semantics/draw/draw.h"
#include "semantics/temperature.h"

namespace sluice {

class DrawReports {
 public:
  DrawReports(const semantics::Row& row, const Cut& cut, float m, const ExplainInput& input,
              const SelectParams& params)
      : m_(m), key_(input.key), scale_(semantics::ScalesOf(params).draw) {
    const DrawMethod method = input.params.draw_method;
    drawn_ = semantics::DrawToken(row, cut, m, scale_, method, key_);
    is_greedy_ = semantics::IsGreedy(params);
    is_cdf_ = method == DrawMethod::kCdf;
    if (is_cdf_) {
      semantics::CutWalk walk(cut);
      for (int64_t i = 0; i < row.size; ++i) {
        mass_ += walk.Keeps(row[i]) ? semantics::Weight(row[i], m, scale_) : 0;
        mass_through_.push_back(mass_);
      }
      threshold_ = semantics::CdfThreshold(key_, semantics::CdfStream(key_), mass_);
    } else {
      mass_ = semantics::KeptMass(row, cut, m, scale_);
      best_ = semantics::DrawGumbel(row, cut, m, scale_, key_).score;
    }
  }

  void Report(Explanation& e) const {
    StageReport& report = e[Stage::kDraw];
    report.is_on = !is_greedy_;
    report.tokens_left = 1;
    e.drawn_id = drawn_;
    e.is_drawn = report.is_left = drawn_ == e.id;
    if (mass_ > 0) {
      const uint64_t weight = e.is_kept ? semantics::Weight(e.adjusted, m_, scale_) : 0;
      e.kept_probability = Ratio(weight, mass_);
    }
    if (!e.is_kept || is_greedy_) return;
    if (is_cdf_) {
      if (mass_ == 0) return;  // the first in the total order, whatever the number
      const uint64_t through = mass_through_[static_cast<size_t>(e.id)];
      CompareShares(report, Comparison::kAbove, Ratio(through, mass_), Ratio(threshold_, mass_),
                    through > threshold_);
      return;
    }
    const float t = semantics::LogWeight(e.adjusted, m_, scale_);
    const float g =
        semantics::Gumbel(semantics::NoiseBits(key_, semantics::GumbelStream(key_), e.id));
    const float score = t + g;
    Compare(report, Comparison::kAtLeast, static_cast<double>(score), static_cast<double>(best_));
  }

 private:
  float m_;
  NoiseKey key_;
  float scale_;
  int32_t drawn_ = -1;
  bool is_greedy_ = false;
  bool is_cdf_ = false;
  uint64_t mass_ = 0;
  std::vector<uint64_t> mass_through_;  // cdf: of the kept tokens up to and with each id
  uint64_t threshold_ = 0;
  float best_ = 0.0f;
};

}  // namespace sluice
