// What the benches share: choosing from lists, numbers as text, progress, and the frame of the
// JSON.
#pragma once

#include <algorithm>
#include <fstream>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/support/stopwatch.h"
#include "cli/text.h"
#include "json/writer.h"
#include "sluice/execution.hpp"
#include "sluice/research/algorithms.hpp"

namespace sluice::cli {

// The values with the given names: all, when no name is given.
template <typename T>
std::vector<T> Chosen(std::span<const T> all, const std::vector<std::string>& names) {
  std::vector<T> chosen;
  for (const T& value : all) {
    const bool is_named = std::find(names.begin(), names.end(), Name(value)) != names.end();
    if (names.empty() || is_named) chosen.push_back(value);
  }
  return chosen;
}

template <typename T>
std::vector<std::string> NamesOf(std::span<const T> values) {
  std::vector<std::string> names;
  for (const T& value : values) names.emplace_back(Name(value));
  return names;
}

// Every one once; all that are available, when no name is given.
std::vector<Backend> ChosenBackends(const std::vector<std::string>& names);
// The same without the reference.
std::vector<Backend> ChosenVectorBackends(const std::vector<std::string>& names);
// "all" is every algorithm but auto.
std::vector<research::Algorithm> ChosenAlgorithms(const std::vector<std::string>& names);

std::string_view NameOf(Backend backend);
std::string_view NameOf(research::Algorithm algorithm);
std::string_view NameOf(SelectAlgorithm algorithm);

std::string Short(double value);            // three digits or so: "0.62", "12.4", "8113"
std::string Times(double value);            // "x12.4"
std::string Micros(double nanoseconds);     // Short, in microseconds
std::string Reads(double reads_a_element);  // "1.25", and "-" where the library did not say

// What was measured on, and how to read it.
void PrintEnvironment(std::ostream& out, std::string_view how_to_read, bool is_quick);

// One line on standard error that is written over, when that is a terminal.
class Progress {
 public:
  Progress();
  void Show(const std::string& next) const;
  void Clear() const;

 private:
  bool is_shown_;
};

// The JSON of a bench: {"env", "commit", "rows"}. The file is opened first, so that a bad path is
// reported at once and not after minutes; without a path nothing is written.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path);
  // write_rows writes the elements of "rows", each with NewLine before it.
  void Write(const std::function<void(JsonWriter&)>& write_rows);
  void NewLine() { file_ << '\n'; }

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace sluice::cli
