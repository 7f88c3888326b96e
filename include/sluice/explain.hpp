// Why a token of a row was drawn, kept or dropped: every stage of the way, what it compared, and by
// how much the token passed or missed.
//
// By the definition, so the answer is that of Select and of the Sampler on every backend. It is for
// people to look at, not for a hot path: it allocates, and sorts the row.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/sampler.hpp"

namespace sluice {

// In the order in which they run.
enum class Stage : uint8_t {
  kLogits,  // the row as it came: what is -inf there is out
  kBitmask,
  kAllowedIds,
  kBadWords,
  kMinTokens,
  kLogitBias,
  kRepetitionPenalty,
  kFrequencyPenalty,
  kPresencePenalty,
  kDry,
  kProcessors,
  kForced,
  kGreedy,  // from here on filters
  kMinP,
  kTopNSigma,
  kTypical,
  kTopK,
  kTopP,
  kMinPLast,
  kXtc,
  kDraw,
};
inline constexpr size_t kStages = static_cast<size_t>(Stage::kDraw) + 1;

// "top-p", "repetition penalty", ...
std::string_view Name(Stage stage);
constexpr bool IsFilter(Stage stage) { return stage >= Stage::kGreedy && stage <= Stage::kXtc; }

// How the quantity of a token stands to the limit when the stage keeps (or draws) the token.
enum class Comparison : uint8_t { kNone, kBelow, kAtMost, kAtLeast, kAbove };
std::string_view Name(Comparison comparison);  // "<", "<=", ">=", ">"; empty for kNone

constexpr bool Holds(Comparison comparison, double quantity, double limit) {
  switch (comparison) {
    case Comparison::kNone:
      return true;
    case Comparison::kBelow:
      return quantity < limit;
    case Comparison::kAtMost:
      return quantity <= limit;
    case Comparison::kAtLeast:
      return quantity >= limit;
    case Comparison::kAbove:
      return quantity > limit;
  }
  return false;
}

// Whether the quantity and the limit of the stage are whole numbers: places, lengths, tokens.
constexpr bool Counts(Stage stage) {
  return stage == Stage::kMinTokens || stage == Stage::kDry || stage == Stage::kGreedy ||
         stage == Stage::kTopK;
}

// One stage and one token. After a filter that is on, a token that came to it is left iff
// Holds(comparison, quantity, limit) or is_exempt.
//
//   stage          quantity                                               limit
//   min-tokens     tokens generated (for a stop token)                    min_tokens
//   dry            length of the repeat that the token would extend       dry_allowed_length
//   greedy         place in the total order, from 1                       1
//   min-p          weight relative to the row's largest                   min_p
//   top-n-sigma    standard deviations below the row's largest value      n_sigma
//   typical        distance of its surprise from the mean one, in bits    the largest that is kept
//   top-k          place among the tokens that came to the stage          k
//   top-p          share of the mass that lies before the token           p
//   xtc            share of the mass                                      threshold
//   draw, gumbel   score                                                  the winner's
//   draw, cdf      share of the kept mass up to and with it, by id        the row's random number
//
// Profiles that keep all ties take the place, and the mass before it, of the first token of the
// same value. Shares of the mass come from integers; where two of those round to the same double,
// quantity is moved by one unit so that the comparison gives the exact answer.
struct StageReport {
  bool is_on = false;       // the parameters turn the stage on
  bool is_left = false;     // the stage keeps the token; for the draw: it was drawn
  int64_t tokens_left = 0;  // in the row after the stage
  // Filters: the share of the adjusted row's mass that is left, at the temperature filters see.
  double mass_left = std::numeric_limits<double>::quiet_NaN();
  // Adjustments: the token's value before the stage and after it.
  float before = std::numeric_limits<float>::quiet_NaN();
  float after = std::numeric_limits<float>::quiet_NaN();
  // NaN and kNone where the stage is off, compares nothing, or the token did not come to it.
  Comparison comparison = Comparison::kNone;
  double quantity = std::numeric_limits<double>::quiet_NaN();
  double limit = std::numeric_limits<double>::quiet_NaN();
  // It stays although the comparison fails: min-p and top-p keep at least one token, XTC the last
  // of those above its threshold, and all of them when there is only one or its coin did not fall.
  bool is_exempt = false;
};

struct Explanation {
  int32_t id = -1;
  RowStatus status = RowStatus::kOk;  // with another, no filter has run and nothing is drawn
  float logit = 0.0f;                 // as it came
  float adjusted = 0.0f;              // after stage 9
  int64_t rank = 0;                   // place in the adjusted row, from 1; 0 when masked
  // Shares of the adjusted row's mass at the temperature that the filters see, and of the kept mass
  // at that of the draw. NaN with a status, the second also when the kept mass is 0.
  double probability = std::numeric_limits<double>::quiet_NaN();
  double kept_probability = std::numeric_limits<double>::quiet_NaN();
  bool is_kept = false;
  bool is_drawn = false;
  std::optional<Stage> dropped_by = {};  // none when kept, and with a status
  int32_t drawn_id = -1;
  DrawMethod draw_method = DrawMethod::kGumbel;
  bool xtc_coin_fell = false;
  Cut cut = {};
  std::array<StageReport, kStages> stages = {};

  const StageReport& operator[](Stage stage) const { return stages[static_cast<size_t>(stage)]; }
  StageReport& operator[](Stage stage) { return stages[static_cast<size_t>(stage)]; }
};

struct ExplainInput {
  LogitsView logits = {};                // one row, as it came from the model
  SamplingParams params = {};            // its seed is not read: `key` has one
  NoiseKey key = {};                     // of the Sampler: {Seed(r), Tokens(r).size(), choice}
  std::span<const int32_t> tokens = {};  // prompt, then output
  size_t prompt_length = 0;
  std::span<const int32_t> bitmask = {};  // ceil(vocab / 32) words, or empty
  int32_t forced = -1;
  std::span<const LogitsProcessor> processors = {};
  Limits limits = {};
};

// One Explanation an id, in their order. Throws Error for what the Sampler would refuse.
std::vector<Explanation> Explain(const ExplainInput& input, std::span<const int32_t> ids);
Explanation Explain(const ExplainInput& input, int32_t id);

// "top-p dropped it: 0.912 of the mass lies before it, 0.9 is kept".
std::string Sentence(const Explanation& explanation);

}  // namespace sluice
