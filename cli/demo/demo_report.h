// What the demonstration found out, for its printers.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cli/demo/demo.h"
#include "cli/generate/logprob_report.h"
#include "sluice/sampler.hpp"

namespace sluice::cli {

// One token with a logit that an adjustment changed; `after` is -inf when it was masked.
struct LogitChange {
  int32_t id;
  float before;
  float after;
};

struct AdjustStage {
  std::string name;
  std::string parameter;
  std::vector<LogitChange> changes;
};

struct FilterStage {
  std::string name;
  std::string parameter;
  int64_t tokens_left;
  double mass_left;  // share of the adjusted row's mass
};

struct CandidateRow {
  int32_t id;
  float logit;
  float adjusted;
  double probability;  // after the adjustments, before the filters
  bool is_kept;
  std::string fate;  // "kept", or which stage took the token out
};

// A kept token in the draw: its score is log_weight + noise, both to base 2.
struct DrawScore {
  int32_t id;
  double probability;  // within the kept set
  float log_weight;
  float noise;
  float score;
  int32_t times_drawn;  // among kDemoDraws draws at the positions from this one on
};

inline constexpr int32_t kDemoDraws = 1000;

// Another way to compute the same token.
struct Proof {
  std::string way;
  int32_t id;
  bool holds;
};

struct DemoReport {
  SamplingParams params;
  NoiseKey key;
  std::vector<AdjustStage> adjustments;
  std::vector<FilterStage> filters;      // the first is the row before them
  std::vector<std::string> off;          // stages that these parameters do not use
  std::vector<CandidateRow> candidates;  // the largest logits, as they came
  int64_t ties_at_lower = 0;             // tokens equal to the Cut's lower boundary
  TokenResult token;
  CutMass mass;
  std::vector<DrawScore> scores;  // every kept token, by probability
  LogprobReport logprobs;
  std::vector<Proof> proofs;
};

void PrintDemo(const DemoReport& report, std::ostream& out, const Terminal& terminal);
void PrintDemoJson(const DemoReport& report, std::ostream& out);

}  // namespace sluice::cli
