// What Explain found, as words.
#include <charconv>
#include <iterator>

#include "sluice/explain.hpp"

namespace sluice {
namespace {

std::string Rounded(double value, int digits) {
  char text[64];
  return {text,
          std::to_chars(text, text + sizeof text, value, std::chars_format::general, digits).ptr};
}

// Two numbers: whole ones with all digits, others in as few, from three on, as distinguish them.
struct NumberPair {
  std::string quantity;
  std::string limit;
};

NumberPair Texts(Stage stage, const StageReport& report) {
  if (Counts(stage) && report.comparison != Comparison::kNone) {
    return {std::to_string(static_cast<int64_t>(report.quantity)),
            std::to_string(static_cast<int64_t>(report.limit))};
  }
  NumberPair pair;
  for (int digits = 3; digits <= 17; ++digits) {
    pair = {Rounded(report.quantity, digits), Rounded(report.limit, digits)};
    if (pair.quantity != pair.limit || report.quantity == report.limit) break;
  }
  return pair;
}

std::string ReasonOf(Stage stage, const StageReport& report) {
  const NumberPair n = Texts(stage, report);
  switch (stage) {
    case Stage::kLogits:
      return "it is -inf in the logits as they came";
    case Stage::kBitmask:
      return "its bit is 0";
    case Stage::kAllowedIds:
      return "it is not among them";
    case Stage::kBadWords:
      return "it would complete one";
    case Stage::kMinTokens:
      return n.quantity + " tokens were generated, a stop token comes after " + n.limit +
             " at the earliest";
    case Stage::kForced:
      return "another token is forced";
    case Stage::kGreedy:
      return "it is number " + n.quantity + " in the row, and temperature 0 keeps the first";
    case Stage::kMinP:
    case Stage::kMinPLast:
      return "it is " + n.quantity + " times as likely as the most likely token, at least " +
             n.limit + " is kept";
    case Stage::kTopNSigma:
      return "it lies " + n.quantity + " standard deviations below the largest logit, up to " +
             n.limit + " is kept";
    case Stage::kTypical:
      return "its surprise is " + n.quantity + " bits away from the mean, up to " + n.limit +
             " is kept";
    case Stage::kTopK:
      return "it is number " + n.quantity + ", the first " + n.limit + " are kept";
    case Stage::kTopP:
      return n.quantity + " of the mass lies before it, " + n.limit + " is kept";
    case Stage::kXtc:
      return "its probability is " + n.quantity + ", and of the tokens from " + n.limit +
             " on only the last stays";
    default:
      if (IsFilter(stage))
        return "its logit is " + n.quantity + ", from " + n.limit + " on is kept";
      return "its value became -inf";  // a number that was too large
  }
}

std::string DrawSentence(const Explanation& e) {
  const StageReport& draw = e[Stage::kDraw];
  const NumberPair n = Texts(Stage::kDraw, draw);
  if (!draw.is_on) return "it was drawn: temperature 0 takes the first token of the row";
  if (draw.comparison == Comparison::kNone) {
    return std::string(e.is_drawn ? "it was drawn" : "it was kept, and not drawn") +
           ": the kept mass is 0, which gives the first kept token";
  }
  if (e.draw_method == DrawMethod::kCdf) {
    return std::string(e.is_drawn ? "it was drawn" : "it was kept, and not drawn") +
           ": its part of the kept mass ends at " + n.quantity + ", the random number is " +
           n.limit;
  }
  if (e.is_drawn) {
    return "it was drawn: its score of " + n.quantity + " is the largest of " +
           std::to_string(e.cut.count) + (e.cut.count == 1 ? " kept token" : " kept tokens");
  }
  return "it was kept, and not drawn: its score is " + n.quantity + ", that of token " +
         std::to_string(e.drawn_id) + " is " + n.limit;
}

}  // namespace

std::string_view Name(Stage stage) {
  constexpr std::string_view kNames[] = {"logits",
                                         "bitmask",
                                         "allowed ids",
                                         "bad words",
                                         "min-tokens",
                                         "logit bias",
                                         "repetition penalty",
                                         "frequency penalty",
                                         "presence penalty",
                                         "dry",
                                         "processors",
                                         "forced token",
                                         "greedy",
                                         "min-p",
                                         "top-n-sigma",
                                         "typical",
                                         "top-k",
                                         "top-p",
                                         "min-p (last)",
                                         "xtc",
                                         "draw"};
  static_assert(std::size(kNames) == kStages);
  const auto index = static_cast<size_t>(stage);
  return index < kStages ? kNames[index] : "unknown";
}

std::string_view Name(Comparison comparison) {
  switch (comparison) {
    case Comparison::kNone:
      return "";
    case Comparison::kBelow:
      return "<";
    case Comparison::kAtMost:
      return "<=";
    case Comparison::kAtLeast:
      return ">=";
    case Comparison::kAbove:
      return ">";
  }
  return "";
}

std::string Sentence(const Explanation& e) {
  if (e.status != RowStatus::kOk) {
    return std::string("no token is kept or drawn: the row's status is ").append(Name(e.status));
  }
  if (e.is_kept) return DrawSentence(e);
  const Stage stage = *e.dropped_by;
  if (stage == Stage::kLogits) return "no stage dropped it: " + ReasonOf(stage, e[stage]);
  return std::string(Name(stage))
      .append(IsFilter(stage) ? " dropped it: " : " masked it: ")
      .append(ReasonOf(stage, e[stage]));
}

}  // namespace sluice
