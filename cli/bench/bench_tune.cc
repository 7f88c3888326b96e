#include <cctype>
#include <cmath>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "bench/stages/tune_bench.h"
#include "bench/support/environment.h"
#include "cli/bench/bench.h"
#include "cli/bench/bench_report.h"
#include "cli/files/file.h"
#include "cli/table.h"

namespace sluice::cli {
namespace {

using bench::TunedAlgorithm;
using bench::TunedCell;

std::string_view KindName(SelectKind kind) {
  switch (kind) {
    case SelectKind::kTopK:
      return "top_k";
    case SelectKind::kTopP:
      return "top_p";
    case SelectKind::kTopKTopP:
      return "top_k_top_p";
    case SelectKind::kOther:
      return "other";
  }
  return "unknown";
}

// The enumerator of a name: "cpu-avx512" is kCpuAvx512, "quick_find_max" is kQuickFindMax.
std::string Enumerator(std::string_view name) {
  std::string text = "k";
  bool starts_word = true;
  for (const char c : name) {
    if (c == '_' || c == '-') {
      starts_word = true;
      continue;
    }
    text += starts_word ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    starts_word = false;
  }
  return text;
}

// The fastest algorithm that is not the winner.
const TunedAlgorithm& RunnerUp(const TunedCell& cell) {
  const bool is_first = &cell.Winner() == &cell.ranked.front();
  return cell.ranked[is_first ? 1 : 0];
}

std::string Line(std::string_view backend, std::string_view kind, int64_t largest_vocab,
                 std::string_view algorithm, const std::string& comment) {
  const std::string vocab = largest_vocab == kMaxVocab ? "kMaxVocab" : Number(largest_vocab);
  return "SLUICE_POLICY(" + Enumerator(backend) + ", " + Enumerator(kind) + ", " + vocab + ", " +
         Enumerator(algorithm) + ")  // " + comment + "\n";
}

// A row holds for vocabularies up to the middle, in the logarithm, between its own and the next
// that was measured.
std::string LineOf(const TunedCell& cell, const TunedCell* next) {
  int64_t largest = kMaxVocab;
  if (next != nullptr) {
    const double product = static_cast<double>(cell.vocab) * static_cast<double>(next->vocab);
    largest = static_cast<int64_t>(std::sqrt(product));
  }
  const TunedAlgorithm& winner = cell.Winner();
  const TunedAlgorithm& other = RunnerUp(cell);
  return Line(NameOf(cell.backend), KindName(cell.kind), largest, NameOf(winner.algorithm),
              "V=" + Number(cell.vocab) + ": " + Micros(winner.ns) + " us, " +
                  std::string(NameOf(other.algorithm)) + " " + Micros(other.ns));
}

// The table as src/select/policy.inc holds it. Rows of backends that were not measured stay as they
// are compiled in.
std::string PolicyText(const std::vector<TunedCell>& cells, bool is_quick) {
  std::string text =
      "// Which algorithm is the fastest, by backend, kind of request and vocabulary: see "
      "policy.h.\n//\n// Written by `sluice bench tune --output src/select/policy.inc` on " +
      bench::ThisEnvironment().cpu +
      ".\n// Times: hot fp32 rows, one thread, geometric mean over peaked, mid, flat and normal "
      "rows.\n// certified stays unless it is slower by more than 5 %.\n";
  if (is_quick) text += "// --quick: too few rows for any of these figures to mean something.\n";
  text += '\n';
  for (const Backend backend : {Backend::kCpuAvx2, Backend::kCpuAvx512}) {
    bool is_measured = false;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].backend != backend) continue;
      is_measured = true;
      const bool has_next = i + 1 < cells.size() && cells[i + 1].backend == backend &&
                            cells[i + 1].kind == cells[i].kind;
      text += LineOf(cells[i], has_next ? &cells[i + 1] : nullptr);
    }
    for (const PolicyRow& row : kPolicy) {
      if (is_measured || row.backend != backend) continue;
      text += Line(NameOf(row.backend), KindName(row.kind), row.largest_vocab,
                   NameOf(row.algorithm), "kept: not measured on this machine");
    }
  }
  return text;
}

void Print(const std::vector<TunedCell>& cells, std::ostream& out, const Terminal& terminal) {
  Table table("llrlrrlrr");
  table.Add({"backend", "kind", "V", "winner", "us", "worst", "runner-up", "us", "certified us"},
            Style::kHeading);
  for (const TunedCell& cell : cells) {
    const TunedAlgorithm& winner = cell.Winner();
    const TunedAlgorithm& other = RunnerUp(cell);
    double certified = 0.0;
    for (const TunedAlgorithm& tuned : cell.ranked) {
      if (tuned.algorithm == SelectAlgorithm::kCertified) certified = tuned.ns;
    }
    table.Add(
        {std::string(NameOf(cell.backend)), std::string(KindName(cell.kind)), Number(cell.vocab),
         std::string(NameOf(winner.algorithm)), Micros(winner.ns), Times(winner.worst),
         std::string(NameOf(other.algorithm)), Micros(other.ns), Micros(certified)},
        winner.algorithm == SelectAlgorithm::kCertified ? Style::kPlain : Style::kGood);
  }
  table.Print(out, terminal);
}

}  // namespace

void RunBenchTune(const BenchTuneOptions& options, std::ostream& out, const Terminal& terminal) {
  bench::TuneOptions run;
  run.backends = ChosenVectorBackends(options.backends);
  if (options.is_quick) {
    run.vocabs = {256, 1024};
    run.rows = run.most_rows = 2;
    run.passes = 1;
    run.budget_ms = 0.5;
  }
  JsonFile file(options.json_path);
  if (!options.output_path.empty()) CheckWritable(options.output_path);
  PrintEnvironment(out,
                   "Hot fp32 rows, one thread. Times are geometric means over peaked, mid, flat "
                   "and normal rows;\nworst: how much slower than the fastest on the same rows the "
                   "winner is where it is slowest.",
                   options.is_quick);

  const Progress progress;
  const std::vector<TunedCell> cells =
      bench::RunTuneBench(run, [&](const std::string& next) { progress.Show(next); });
  progress.Clear();
  Print(cells, out, terminal);
  file.Write([&](JsonWriter& json) {
    for (const TunedCell& cell : cells) {
      for (const TunedAlgorithm& tuned : cell.ranked) {
        file.NewLine();
        json.Object([&] {
          json.Key("bench").Value("tune");
          json.Key("backend").Value(NameOf(cell.backend));
          json.Key("kind").Value(KindName(cell.kind));
          json.Key("vocab").Value(cell.vocab);
          json.Key("algorithm").Value(NameOf(tuned.algorithm));
          json.Key("ns").Value(tuned.ns);
          json.Key("worst").Value(tuned.worst);
          json.Key("is_winner").Value(&tuned == &cell.Winner());
        });
      }
    }
  });
  if (options.output_path.empty()) return;
  std::ofstream table(options.output_path, std::ios::trunc);
  table << PolicyText(cells, options.is_quick);
  table.close();
  if (!table) throw std::runtime_error("cannot write " + options.output_path);
  out << "\nwritten: " << options.output_path << '\n';
}

}  // namespace sluice::cli
