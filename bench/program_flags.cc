#include "bench/program_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <iostream>
#include <stdexcept>

#include "support/check.h"

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

template <typename T>
T NumberFrom(const char* flag, const std::string& text, FlagRange range) {
  T value = {};
  if (!Read(text, range, value)) ThrowInvalid(flag, ToText(text), RangeText(range.low, range.high));
  return value;
}

HeadShape HeadFrom(const char* flag, const std::string& text) {
  HeadShape head = {};
  const size_t x = std::min(text.find('x'), text.size());
  if (!Read(text.substr(0, x), kVocab, head.vocab) ||
      !Read(std::string_view(text).substr(std::min(x + 1, text.size())), kDim, head.dim)) {
    ThrowInvalid(flag, ToText(text),
                 "VOCABxDIM in " + RangeText(kVocab.low, kVocab.high) + " and " +
                     RangeText(kDim.low, kDim.high));
  }
  return head;
}

std::string HeadText(const HeadShape& head) { return ToText(head.vocab) + "x" + ToText(head.dim); }

template <typename T>
std::string NumberText(T value) {
  if constexpr (std::is_floating_point_v<T>) return ToText(value);
  return ToText(static_cast<int64_t>(value));
}

template <typename Values, typename TextOf>
Texts TextsOf(const Values& values, const TextOf& text_of) {
  Texts texts;
  for (const auto& value : values) texts.push_back(text_of(value));
  return texts;
}

std::string WithRange(const char* help, FlagRange range) {
  return help + (": " + RangeText(range.low, range.high));
}

}  // namespace

ProgramFlags::ProgramFlags(const std::string& program, const std::string& about)
    : app_(std::make_unique<CLI::App>(about + " Prints a JSON object.", program)) {
  app_->allow_extras();  // Parse tells what there is instead
  app_->footer("A list is separated by commas, or its flag comes again.");
}

ProgramFlags::~ProgramFlags() = default;

void ProgramFlags::Add(const std::string& flag, const std::string& type, const Texts& usual,
                       bool is_list, const std::string& help, const Take& take,
                       const std::function<void()>& clear) {
  CLI::Option* const option = app_->add_option_function<Texts>(
      flag,
      [take, clear](const Texts& texts) {
        clear();
        for (const std::string& text : texts) take(text);
      },
      help);
  option->type_name(type)->default_str(CLI::detail::join(usual, ","))->allow_extra_args(false);
  if (is_list) {
    option->delimiter(',');
  } else {
    option->expected(1);
  }
}

template <typename T>
void ProgramFlags::Number(const char* flag, T& value, FlagRange range, const char* help) {
  Add(flag, "N", IsIn(value, range) ? Texts{NumberText(value)} : Texts{}, false,
      WithRange(help, range),
      [flag, &value, range](const std::string& text) { value = NumberFrom<T>(flag, text, range); });
}
template void ProgramFlags::Number(const char*, int32_t&, FlagRange, const char*);
template void ProgramFlags::Number(const char*, int64_t&, FlagRange, const char*);
template void ProgramFlags::Number(const char*, double&, FlagRange, const char*);

template <typename T>
void ProgramFlags::Numbers(const char* flag, std::vector<T>& values, FlagRange range,
                           const char* help) {
  Add(
      flag, "N", TextsOf(values, NumberText<T>), true, WithRange(help, range),
      [flag, &values, range](const std::string& text) {
        values.push_back(NumberFrom<T>(flag, text, range));
      },
      [&values] { values.clear(); });
}
template void ProgramFlags::Numbers(const char*, std::vector<int32_t>&, FlagRange, const char*);
template void ProgramFlags::Numbers(const char*, std::vector<int64_t>&, FlagRange, const char*);

void ProgramFlags::Head(const char* flag, HeadShape& head, const char* help) {
  Add(flag, "VOCABxDIM", {HeadText(head)}, false, help,
      [flag, &head](const std::string& text) { head = HeadFrom(flag, text); });
}

void ProgramFlags::Heads(const char* flag, std::vector<HeadShape>& heads, const char* help) {
  Add(
      flag, "VOCABxDIM", TextsOf(heads, HeadText), true, help,
      [flag, &heads](const std::string& text) { heads.push_back(HeadFrom(flag, text)); },
      [&heads] { heads.clear(); });
}

void ProgramFlags::Text(const char* flag, std::string& text, const char* type, const char* help) {
  Add(flag, type, {}, false, help, [flag, type, &text](const std::string& given) {
    if (given.empty()) ThrowInvalid(flag, ToText(given), type);
    text = given;
  });
}

void ProgramFlags::Names(const char* flag, Texts& names, const Texts& allowed, const char* help) {
  AddNames(
      flag, allowed, names, true, help,
      [&names](size_t, const std::string& name) { names.push_back(name); },
      [&names] { names.clear(); });
}

void ProgramFlags::AddNames(const char* flag, const Texts& names, const Texts& usual, bool is_list,
                            const std::string& help,
                            const std::function<void(size_t, const std::string&)>& take,
                            const std::function<void()>& clear) {
  const std::string allowed = CLI::detail::join(names, ", ");
  Add(
      flag, "NAME", usual, is_list, help + ": " + allowed,
      [flag, names, allowed, take](const std::string& text) {
        const auto name = std::find(names.begin(), names.end(), text);
        if (name == names.end()) ThrowInvalid(flag, ToText(text), allowed);
        take(static_cast<size_t>(name - names.begin()), text);
      },
      clear);
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
