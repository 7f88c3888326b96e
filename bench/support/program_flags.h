// The command line of a bench that is a program of its own, and its main.
//
//   struct Options {
//     std::vector<int64_t> batches = {1, 8, 32};
//     explicit Options(ProgramFlags& flags) {
//       flags.Number("--batch", batches, {1, 64}, "rows of a call");
//     }
//   };
//   void Run(const Options& options);
//   int main(int argc, char** argv) {
//     return RunProgram(argc, argv, "name", "What it measures.", Run);
//   }
//
// What a flag is given is looked at before anything runs: a flag that there is not, a value that is
// missing, of another kind or out of range is an error that names it and what is allowed. --help
// prints all flags. A list is separated by commas, or its flag comes again.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/head/heads.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::bench {

struct FlagRange {
  int64_t low;
  int64_t high;
};

template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

class ProgramFlags {
 public:
  ProgramFlags(const std::string& program, const std::string& about);
  ~ProgramFlags();
  ProgramFlags(const ProgramFlags&) = delete;
  ProgramFlags& operator=(const ProgramFlags&) = delete;

  // What a value is when its flag is declared stays where the flag is not given; a number that is
  // out of range then stands for none. T: int64_t, int32_t, double, or a std::vector of integers.
  template <typename T>
  void Number(const char* flag, T& value, FlagRange range, const char* help);
  // VOCABxDIM. T: HeadShape, or a std::vector of them.
  template <typename T>
  void Head(const char* flag, T& value, const char* help);
  void Names(const char* flag, std::vector<std::string>& names,
             const std::vector<std::string>& allowed, const char* help);
  void Text(const char* flag, std::string& text, const char* type, const char* help);
  template <typename T>
  void Choice(const char* flag, T& value, const Choices<std::type_identity_t<T>>& choices,
              const char* help) {
    std::vector<std::string> names;
    std::string usual;
    for (const auto& [name, meant] : choices) {
      names.push_back(name);
      if (meant == value) usual = name;
    }
    AddChoice(flag, usual, names, help, [&value, choices](size_t i) { value = choices[i].second; });
  }

  // Whether there is anything to run: not after --help. Throws std::exception.
  bool Parse(int argc, const char* const* argv);

 private:
  void AddChoice(const char* flag, const std::string& usual, const std::vector<std::string>& names,
                 const char* help, const std::function<void(size_t i)>& take);

  std::unique_ptr<CLI::App> app_;
};

// Values that have a Name, by it.
template <typename Values>
auto ByName(const Values& values) {
  Choices<std::decay_t<decltype(*std::begin(values))>> choices;
  for (const auto& value : values) choices.emplace_back(Name(value), value);
  return choices;
}

// Things with a member `name`.
template <typename Things>
std::vector<std::string> NamesOf(const Things& things) {
  std::vector<std::string> names;
  for (const auto& thing : things) names.emplace_back(thing.name);
  return names;
}

// Every name, where none was given.
inline bool IsSelected(const std::vector<std::string>& names, std::string_view name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// What `run` returns; 2 where the command line is wrong, 1 for any other failure.
int RunProgram(int argc, char** argv, const std::string& program, ProgramFlags& flags,
               const std::function<int()>& run);

template <typename Options, typename Result>
int RunProgram(int argc, char** argv, const char* program, const char* about,
               Result (*run)(const Options&)) {
  ProgramFlags flags(program, about);
  Options options(flags);  // filled by Parse
  return RunProgram(argc, argv, program, flags, [&] {
    if constexpr (std::is_void_v<Result>) {
      run(options);
      return 0;
    } else {
      return run(options);
    }
  });
}

}  // namespace sluice::bench
