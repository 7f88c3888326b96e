#include "cli/bench/bench_report.h"

#include <unistd.h>

#include <iostream>
#include <stdexcept>

#include "bench/support/environment.h"
#include "bench/support/floor.h"
#include "cli/files/file.h"
#include "sluice/research/algorithms.hpp"

namespace sluice::cli {
namespace {

constexpr size_t kColumns = 110;  // of text about tables

}  // namespace

std::vector<Backend> ChosenBackends(const std::vector<std::string>& names) {
  std::vector<Backend> chosen;
  for (const std::string& name : names) {
    const Backend backend = BackendByName(name);
    if (std::find(chosen.begin(), chosen.end(), backend) == chosen.end()) {
      chosen.push_back(backend);
    }
  }
  for (const BackendInfo& info : Backends()) {
    if (names.empty() && info.available) chosen.push_back(info.backend);
  }
  return chosen;
}

std::vector<Backend> ChosenVectorBackends(const std::vector<std::string>& names) {
  std::vector<Backend> chosen = ChosenBackends(names);
  std::erase(chosen, Backend::kRef);
  if (chosen.empty()) {
    throw std::runtime_error("no vector backend to measure: sluice inspect backends says why");
  }
  return chosen;
}

std::vector<research::Algorithm> ChosenAlgorithms(const std::vector<std::string>& names) {
  std::vector<research::Algorithm> chosen;
  const auto add = [&](research::Algorithm algorithm) {
    if (std::find(chosen.begin(), chosen.end(), algorithm) == chosen.end()) {
      chosen.push_back(algorithm);
    }
  };
  for (const std::string& name : names) {
    if (name != "all") {
      add(research::AlgorithmByName(name));
      continue;
    }
    for (const research::AlgorithmEntry& info : research::Algorithms()) {
      if (info.algorithm != research::Algorithm::kAuto) add(info.algorithm);
    }
  }
  return chosen;
}

std::string_view NameOf(Backend backend) {
  for (const BackendInfo& info : Backends()) {
    if (info.backend == backend) return info.name;
  }
  return "auto";
}

std::string_view NameOf(research::Algorithm algorithm) {
  for (const research::AlgorithmEntry& info : research::Algorithms()) {
    if (info.algorithm == algorithm) return info.name;
  }
  return "unknown";
}

std::string_view NameOf(SelectAlgorithm algorithm) {
  return NameOf(research::AlgorithmOf(algorithm));
}

std::string Short(double value) { return Fixed(value, value < 10 ? 2 : value < 100 ? 1 : 0); }
std::string Times(double value) { return std::string("x").append(Short(value)); }
std::string Micros(double nanoseconds) { return Short(nanoseconds / 1e3); }
std::string Reads(double reads_a_element) {
  return reads_a_element > 0.0 ? Short(reads_a_element) : "-";
}

void PrintEnvironment(std::ostream& out, std::string_view how_to_read, bool is_quick) {
  const bench::Environment environment = bench::ThisEnvironment();
  out << environment.cpu << ", " << environment.compiler << ", commit " << environment.commit
      << '\n'
      << Wrapped(how_to_read, kColumns, 0) << '\n';
  if (is_quick) out << "--quick: too few rows for any of these figures to mean something.\n";
  out << '\n';
}

Progress::Progress() : is_shown_(isatty(STDERR_FILENO) != 0) {}

void Progress::Show(const std::string& next) const {
  if (is_shown_) std::cerr << "\r\x1b[Kbench: " << next << std::flush;
}

void Progress::Clear() const {
  if (is_shown_) std::cerr << "\r\x1b[K" << std::flush;
}

JsonFile::JsonFile(const std::string& path) : path_(path) {
  if (path.empty()) return;
  file_.open(path);
  if (!file_) ThrowUnwritable(path);
}

void JsonFile::Write(const std::function<void(JsonWriter&)>& write_rows) {
  if (!file_.is_open()) return;
  const bench::Environment environment = bench::ThisEnvironment();
  JsonWriter json(file_);
  json.Object([&] {
    json.Key("env").Object([&] {
      json.Key("cpu").Value(environment.cpu);
      json.Key("cores").Value(environment.cores);
      json.Key("compiler").Value(environment.compiler);
      json.Key("os").Value(environment.os);
      json.Key("floor").Value(bench::RowMaxInstructions());
    });
    json.Key("commit").Value(environment.commit);
    json.Key("rows").Array([&] { write_rows(json); });
  });
  file_ << '\n';
  file_.close();
  if (!file_) throw std::runtime_error("cannot write " + path_);
}

}  // namespace sluice::cli
