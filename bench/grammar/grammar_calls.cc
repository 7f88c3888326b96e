// The calls of sluice/grammar.hpp, timed for bench/grammar_bench.py, which does the same through
// xgrammar's Python package in turns with this.
//
//     sluice_grammar_calls TOKENIZER.json LIBRARY_FOLDER STOP_TOKEN
//
// For each line of standard input it writes one line. Times are in nanoseconds.
//
//     compile FILE [FILE ...]     of the last schema, by a compiler that has done the others:
//     first,
//                                 and once more, which is found in its cache
//     fill FILE TOKENS ROWS       of ROWS matchers in turn, each following the tokens of the file:
//                                 mean and median of a step with all rows, for a row
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <numeric>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sluice/grammar.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

int64_t Since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Calls {
 public:
  Calls(const std::string& tokenizer, const std::string& folder, int32_t stop)
      : library_(GrammarLibrary::Load(folder)),
        tokenizer_(Tokenizer::FromFile(tokenizer)),
        stop_(stop) {}

  std::string Run(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "compile") return Compile(words);
    if (command == "fill") return Fill(words);
    throw std::runtime_error("no such command: " + command);
  }

 private:
  GrammarCompiler NewCompiler() const {
    return {library_, tokenizer_, std::span(&stop_, 1), tokenizer_.size()};
  }

  std::string Compile(std::istream& words) const {
    GrammarCompiler compiler = NewCompiler();
    int64_t first = 0;
    int64_t cached = 0;
    for (std::string path; words >> path;) {
      const std::string schema = ReadFile(path);
      for (int64_t* const to : {&first, &cached}) {
        const Clock::time_point start = Clock::now();
        const Grammar grammar = compiler.Compile(GrammarKind::kJsonSchema, schema);
        *to = Since(start);
      }
    }
    return std::to_string(first) + " " + std::to_string(cached);
  }

  std::string Fill(std::istream& words) const {
    std::string schema;
    std::string path;
    size_t rows = 0;
    words >> schema >> path >> rows;
    GrammarCompiler compiler = NewCompiler();
    const Grammar grammar = compiler.Compile(GrammarKind::kJsonSchema, ReadFile(schema));
    std::vector<int32_t> tokens;
    std::istringstream ids(ReadFile(path));
    for (int32_t id = 0; ids >> id;) tokens.push_back(id);
    std::vector<GrammarMatcher> matchers;
    for (size_t row = 0; row < rows; ++row) matchers.emplace_back(grammar);
    const size_t width = (static_cast<size_t>(grammar.vocab()) + 31) / 32;
    std::vector<int32_t> mask(rows * width);
    std::vector<int64_t> times;
    for (const int32_t token : tokens) {
      const Clock::time_point start = Clock::now();
      for (size_t row = 0; row < rows; ++row) {
        matchers[row].FillMask(std::span(mask).subspan(row * width, width));
      }
      times.push_back(Since(start));
      for (GrammarMatcher& matcher : matchers) {
        if (!matcher.Accept(token)) throw std::runtime_error("a token is refused");
      }
    }
    const auto share = [rows](int64_t ns) {
      return std::to_string(static_cast<double>(ns) / static_cast<double>(rows));
    };
    const int64_t sum = std::accumulate(times.begin(), times.end(), int64_t{0});
    std::ranges::sort(times);
    return share(sum / std::ssize(times)) + " " + share(times[times.size() / 2]);
  }

  GrammarLibrary library_;
  Tokenizer tokenizer_;
  int32_t stop_;
};

}  // namespace
}  // namespace sluice

int main(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: sluice_grammar_calls TOKENIZER.json LIBRARY_FOLDER STOP_TOKEN\n";
    return 2;
  }
  try {
    sluice::Calls calls(words[1], words[2], std::stoi(words[3]));
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << calls.Run(line) << '\n' << std::flush;
    }
  } catch (const std::exception& error) {
    std::cerr << "sluice_grammar_calls: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
