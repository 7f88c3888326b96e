#include "bench/support/program_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "support/check.h"
#include "support/number.h"

namespace sluice::bench {
namespace {

using Texts = std::vector<std::string>;

constexpr FlagRange kVocab = {64, kMaxVocab};
constexpr FlagRange kDim = {1, 1 << 20};

template <typename T>
bool IsIn(T value, FlagRange range) {  // no NaN is
  return value >= static_cast<T>(range.low) && value <= static_cast<T>(range.high);
}

// The whole text is a number of the range.
template <typename T>
bool Read(std::string_view text, FlagRange range, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && IsIn(value, range);
}

// The type of a value, and of those of a list.
template <typename T>
T OneOf(const T&);
template <typename T>
T OneOf(const std::vector<T>&);

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

// from(text) is a value of a flag, text_of(value) what --help says of one.
template <typename T, typename From, typename TextOf>
void Add(CLI::App& app, const char* flag, const char* type, T& value, const std::string& help,
         const From& from, const TextOf& text_of) {
  const auto take = [&value, from](const Texts& texts) {
    if constexpr (kIsList<T>) {
      value.clear();
      for (const std::string& text : texts) value.push_back(from(text));
    } else {
      value = from(texts[0]);
    }
  };
  CLI::Option* const option = app.add_option_function<Texts>(flag, take, help);
  option->type_name(type)->allow_extra_args(false);
  if constexpr (kIsList<T>) {
    Texts usual;
    for (const auto& one : value) usual.push_back(text_of(one));
    option->delimiter(',')->default_str(CLI::detail::join(usual, ","));
  } else {
    option->expected(1)->default_str(text_of(value));
  }
}

// Its place among the names.
size_t Find(const char* flag, const Texts& names, const std::string& text) {
  const auto name = std::find(names.begin(), names.end(), text);
  if (name == names.end()) ThrowInvalid(flag, ToText(text), CLI::detail::join(names, ", "));
  return static_cast<size_t>(name - names.begin());
}

std::string Same(const std::string& text) { return text; }

}  // namespace

ProgramFlags::ProgramFlags(const std::string& program, const std::string& about)
    : app_(std::make_unique<CLI::App>(about + " Prints a JSON object.", program)) {
  app_->allow_extras();  // Parse names what there is instead
  app_->footer("A list is separated by commas, or its flag comes again.");
}

ProgramFlags::~ProgramFlags() = default;

template <typename T>
void ProgramFlags::Number(const char* flag, T& value, FlagRange range, const char* help) {
  const std::string allowed = RangeText(range.low, range.high);
  const auto from = [=](const std::string& text) {
    decltype(OneOf(value)) number = {};
    if (!Read(text, range, number)) ThrowInvalid(flag, ToText(text), allowed);
    return number;
  };
  Add(*app_, flag, "N", value, help + (": " + allowed), from,
      [&](auto one) { return IsIn(one, range) ? sluice::Number(one) : ""; });
}
template void ProgramFlags::Number(const char*, int64_t&, FlagRange, const char*);
template void ProgramFlags::Number(const char*, double&, FlagRange, const char*);
template void ProgramFlags::Number(const char*, int32_t&, FlagRange, const char*);
template void ProgramFlags::Number(const char*, std::vector<int32_t>&, FlagRange, const char*);
template void ProgramFlags::Number(const char*, std::vector<int64_t>&, FlagRange, const char*);

template <typename T>
void ProgramFlags::Head(const char* flag, T& value, const char* help) {
  const auto from = [flag](const std::string& text) {
    HeadShape head = {};
    const size_t x = text.find('x');
    if (x == std::string::npos || !Read(std::string_view(text).substr(0, x), kVocab, head.vocab) ||
        !Read(std::string_view(text).substr(x + 1), kDim, head.dim)) {
      ThrowInvalid(flag, ToText(text),
                   "VOCABxDIM in " + RangeText(kVocab.low, kVocab.high) + " and " +
                       RangeText(kDim.low, kDim.high));
    }
    return head;
  };
  Add(*app_, flag, "VOCABxDIM", value, help, from,
      [](const HeadShape& head) { return ToText(head.vocab) + "x" + ToText(head.dim); });
}
template void ProgramFlags::Head(const char*, HeadShape&, const char*);
template void ProgramFlags::Head(const char*, std::vector<HeadShape>&, const char*);

void ProgramFlags::Text(const char* flag, std::string& text, const char* type, const char* help) {
  const auto from = [flag, type](const std::string& given) {
    if (given.empty()) ThrowInvalid(flag, ToText(given), type);
    return given;
  };
  Add(*app_, flag, type, text, help, from, Same);
}

void ProgramFlags::Names(const char* flag, Texts& names, const Texts& allowed, const char* help) {
  const auto from = [=](const std::string& text) { return allowed[Find(flag, allowed, text)]; };
  Add(*app_, flag, "NAME", names, help + (": " + CLI::detail::join(allowed, ", ")), from, Same);
}

void ProgramFlags::AddChoice(const char* flag, const std::string& usual, const Texts& names,
                             const char* help, const std::function<void(size_t)>& take) {
  const auto take_text = [=](const Texts& texts) { take(Find(flag, names, texts[0])); };
  app_->add_option_function<Texts>(flag, take_text, help + (": " + CLI::detail::join(names, ", ")))
      ->type_name("NAME")
      ->allow_extra_args(false)
      ->expected(1)
      ->default_str(usual);
}

bool ProgramFlags::Parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::cout << app_->help();
    return false;
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    const std::string flag = what.substr(0, what.find(':'));
    throw std::invalid_argument(flag +
                                " takes one value: " + app_->get_option(flag)->get_description());
  }
  const Texts unknown = app_->remaining();
  if (unknown.empty()) return true;
  Texts flags;
  for (const CLI::Option* option : app_->get_options()) flags.push_back(option->get_name());
  ThrowInvalid("flag", ToText(unknown[0]), CLI::detail::join(flags, ", "));
}

int RunProgram(int argc, char** argv, const std::string& program, ProgramFlags& flags,
               const std::function<int()>& run) {
  int status = 2;
  try {
    if (!flags.Parse(argc, argv)) return 0;
    status = 1;
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return status;
  }
}

}  // namespace sluice::bench
