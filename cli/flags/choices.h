// The values that an option takes, as its type says: "{a,b}" is a choice of names. Help, completion
// and errors read them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
class Option;
}  // namespace CLI

namespace sluice::cli {

// "{a,b}"
std::string ChoiceType(const std::vector<std::string>& names);

// The names of "{a,b}", wherever in the option's type it stands; of other options none.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// "NAME" of a choice, "INT" of the type "INT:INT in [0 - 5]" that CLI11's Range makes.
std::string PlainType(const CLI::Option& option);

// A value in words: "gumbel or cdf", "a whole number in [0, 5]", "a file".
std::string ValueText(const CLI::Option& option);

// "a, b or c"
std::string ListText(const std::vector<std::string>& names);

// "; did you mean 'top-k'?" where one of the names is near, else nothing.
std::string DidYouMean(std::string_view word, const std::vector<std::string>& names);

// Checks the values of every option that has choices, in this command and all below it.
void CheckChoices(CLI::App& app);

}  // namespace sluice::cli
