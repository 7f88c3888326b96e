// The demonstration as text.
#include <algorithm>
#include <cmath>

#include "cli/demo/demo_report.h"
#include "cli/demo/demo_row.h"
#include "cli/flags/param_flags.h"
#include "cli/inspect/stage_text.h"
#include "cli/table.h"
#include "cli/text.h"
#include "sluice/version.hpp"

namespace sluice::cli {
namespace {

constexpr size_t kShownScores = 6;
constexpr int kBarWidth = 24;

// The word in a table: its leading space would only shift the column.
std::string WordCell(int32_t id) {
  const std::string_view word = DemoWord(id);
  if (word.empty()) return "(noise)";
  return std::string(word.substr(word.front() == ' ' ? 1 : 0));
}

class DemoPrinter {
 public:
  DemoPrinter(const DemoReport& report, std::ostream& out, const Terminal& terminal)
      : report_(report), out_(out), terminal_(terminal) {}

  void Print() {
    Introduction();
    const bool has_token = report_.token.status == RowStatus::kOk;
    if (has_token) Candidates();
    Adjustments();
    if (!has_token) return;
    Filters();
    CutAndMass();
    Scores();
    Draws();
    Proofs();
    PrintLogprobs(report_.logprobs, out_, terminal_);
  }

 private:
  void Heading(std::string_view text) {
    out_ << '\n' << terminal_.Styled(text, Style::kHeading) << '\n';
  }

  void Introduction() {
    out_ << terminal_.Styled("Sluice " + std::string(kVersionString) +
                                 ": from a row of logits to a token, stage by stage",
                             Style::kHeading)
         << "\nThe logits are generated (noise, and likely words written by hand); no model made"
            " them.\n\n";
    Table table("ll");
    table.Add({"prompt", Quoted(DemoText(DemoPrompt()))});
    table.Add({"so far", Quoted(DemoText(DemoOutput()))});
    table.Add({"row", std::to_string(kDemoVocab) + " logits, one for each token that may be next"});
    table.Add({"command", "sluice demo " + FlagsOf(report_.params, DemoParams())});
    table.Print(out_, terminal_);
  }

  void Candidates() {
    Heading("1. The largest logits, and what becomes of them");
    Table table("rrlrrrll");
    table.Add({"rank", "id", "word", "logit", "adjusted", "prob", "", "fate"}, Style::kFaint);
    int rank = 0;
    for (const CandidateRow& c : report_.candidates) {
      const bool is_drawn = c.id == report_.token.id;
      table.Add({Number(++rank), Number(c.id), WordCell(c.id), LogitText(c.logit),
                 c.adjusted == c.logit ? "" : LogitText(c.adjusted), Percent(c.probability),
                 terminal_.Bar(c.probability, kBarWidth), c.fate + (is_drawn ? ", DRAWN" : "")},
                is_drawn    ? Style::kGood
                : c.is_kept ? Style::kPlain
                            : Style::kFaint);
    }
    table.Print(out_, terminal_);
    out_ << "  ... and " << kDemoVocab - static_cast<int>(report_.candidates.size())
         << " more. prob: after the adjustments, at the temperature, before the filters.\n";
  }

  void Adjustments() {
    Heading("2. Adjust: what the request says about single tokens");
    Table table("lll");
    for (const AdjustStage& stage : report_.adjustments) {
      table.Add({stage.name, stage.parameter, ChangesText(stage)});
    }
    table.Print(out_, terminal_);
    if (report_.adjustments.empty()) out_ << "  the request changes no logit\n";
  }

  // "2 tokens: mill 9.500 -> 7.917, ...", those that were the most likely first.
  static std::string ChangesText(const AdjustStage& stage) {
    constexpr size_t kShown = 2;
    std::vector<LogitChange> changes = stage.changes;
    std::sort(changes.begin(), changes.end(), [](const LogitChange& a, const LogitChange& b) {
      return a.before > b.before || (a.before == b.before && a.id < b.id);
    });
    std::string text = Number(changes.size()) + (changes.size() == 1 ? " token" : " tokens");
    for (size_t i = 0; i < std::min(kShown, changes.size()); ++i) {
      text += (i == 0 ? ": " : ", ") + WordCell(changes[i].id) + " " +
              LogitText(changes[i].before) + " -> " + LogitText(changes[i].after);
    }
    return text + (changes.size() > kShown ? ", ..." : "");
  }

  void Filters() {
    Heading("3. Select: every filter keeps an interval of one order (logit, then lowest id)");
    Table table("llrrl");
    table.Add({"stage", "parameter", "tokens left", "mass left", ""}, Style::kFaint);
    for (const FilterStage& stage : report_.filters) {
      table.Add({stage.name, stage.parameter, Number(stage.tokens_left), Percent(stage.mass_left),
                 terminal_.Bar(stage.mass_left, kBarWidth)});
    }
    table.Print(out_, terminal_);
    std::string off;
    for (const std::string& name : report_.off) off += (off.empty() ? "" : ", ") + name;
    out_ << terminal_.Styled("  off: " + off, Style::kFaint) << '\n';
  }

  void CutAndMass() {
    Heading("4. The Cut: the kept set as two boundaries, whatever its size");
    const Cut& cut = report_.token.cut;
    const CutMass& mass = report_.mass;
    const auto total = static_cast<double>(mass.total);
    Table table("ll");
    table.Add(
        {"upper", LogitText(cut.upper) + (std::isinf(cut.upper)
                                              ? ": nothing is dropped from the top"
                                              : ", ties dropped " + Number(cut.ties_dropped))});
    table.Add({"lower", LogitText(cut.lower) + ", ties kept " + Number(cut.ties_kept) + " of " +
                            Number(report_.ties_at_lower)});
    table.Add({"kept", Number(cut.count) + (cut.count == 1 ? " token" : " tokens")});
    table.Add({"mass", Number(mass.kept) + " of the " + Number(mass.total) + " that top-p saw, " +
                           Percent(static_cast<double>(mass.kept) / total) + "; exact integers"});
    table.Add({"margin", mass.margin == CutMass{}.margin
                             ? std::string("none: top-p is off")
                             : Percent(static_cast<double>(mass.margin) / total) +
                                   " of the mass separates top-p from another set"});
    table.Print(out_, terminal_);
  }

  void Scores() {
    if (report_.params.draw_method == DrawMethod::kCdf) {
      Heading("5. Draw: where a keyed random number falls among the masses, by id");
      DrawnText();
      return;
    }
    Heading("5. Draw: the largest sum of log-probability and keyed noise wins");
    out_ << "  noise = f(seed " << report_.key.seed << ", position " << report_.key.position
         << ", token id), and of nothing else\n";
    std::vector<DrawScore> best = report_.scores;
    std::stable_sort(best.begin(), best.end(),
                     [](const DrawScore& a, const DrawScore& b) { return a.score > b.score; });
    best.resize(std::min(best.size(), kShownScores));
    Table table("rlrrrl");
    table.Add({"id", "word", "log2 weight", "noise", "score"}, Style::kFaint);
    for (const DrawScore& s : best) {
      const bool is_drawn = s.id == report_.token.id;
      table.Add({Number(s.id), WordCell(s.id), LogitText(s.log_weight), LogitText(s.noise),
                 LogitText(s.score), is_drawn ? "<- drawn" : ""},
                is_drawn ? Style::kGood : Style::kPlain);
    }
    table.Print(out_, terminal_);
    DrawnText();
  }

  void DrawnText() {
    const std::string text = DemoText(DemoOutput()) + std::string(DemoWord(report_.token.id));
    out_ << "  => " << terminal_.Styled(Quoted(text), Style::kGood) << '\n';
  }

  void Draws() {
    Heading("6. " + Number(kDemoDraws) + " draws at the positions from " +
            Number(report_.key.position) + " on, against the exact probabilities");
    Table table("lrrl");
    table.Add({"word", "exact", "drawn", ""}, Style::kFaint);
    const size_t shown = std::min<size_t>(report_.scores.size(), 10);
    double other_probability = 1.0;
    int32_t other_draws = kDemoDraws;
    for (size_t i = 0; i < shown; ++i) {
      const DrawScore& s = report_.scores[i];
      table.Add(DrawnCells(WordCell(s.id), s.probability, s.times_drawn));
      other_probability -= s.probability;
      other_draws -= s.times_drawn;
    }
    if (shown < report_.scores.size()) {
      table.Add(DrawnCells("(others)", other_probability, other_draws));
    }
    table.Print(out_, terminal_);
  }

  std::vector<std::string> DrawnCells(const std::string& word, double probability,
                                      int32_t draws) const {
    const double share = static_cast<double>(draws) / kDemoDraws;
    return {word, Percent(probability), Percent(share), terminal_.Bar(share, kBarWidth)};
  }

  void Proofs() {
    Heading("7. The same token by every way, bit for bit");
    Table table("lll");
    for (const Proof& proof : report_.proofs) {
      table.Add({proof.way, Number(proof.id) + " " + WordCell(proof.id),
                 proof.holds ? "same" : "DIFFERENT"},
                proof.holds ? Style::kGood : Style::kPlain);
    }
    table.Print(out_, terminal_);
  }

  const DemoReport& report_;
  std::ostream& out_;
  const Terminal& terminal_;
};

}  // namespace

void PrintDemo(const DemoReport& report, std::ostream& out, const Terminal& terminal) {
  DemoPrinter(report, out, terminal).Print();
}

}  // namespace sluice::cli
