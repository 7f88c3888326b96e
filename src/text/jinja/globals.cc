// The functions that every template has.
#include <ctime>

#include "text/jinja/arguments.h"
#include "text/jinja/run.h"
#include "text/jinja/strings.h"

namespace sluice::text::jinja {
namespace {

Value Range(Run& run, const Arguments& arguments) {
  const size_t given = arguments.positional.size();
  if (given < 1 || given > 3) run.Refuse("range", "one to three integers");
  int64_t parts[3] = {0, 0, 1};
  for (size_t i = 0; i < given; ++i) {
    parts[given == 1 ? 1 : i] = IntegerArgument(run, arguments, i, "range", 0);
  }
  if (parts[2] == 0) run.Refuse("a range's step 0", "another number");
  const auto low = static_cast<double>(parts[0]);
  const double count = (static_cast<double>(parts[1]) - low) / static_cast<double>(parts[2]);
  constexpr double kMost = 100000;  // as in Jinja's sandbox
  if (count > kMost) run.Refuse("a longer range", "at most 100000 numbers");
  List items;
  for (int64_t i = parts[0]; parts[2] > 0 ? i < parts[1] : i > parts[1];) {
    run.Charge();
    items.push_back(Value::Of(i));
    if (__builtin_add_overflow(i, parts[2], &i)) break;
  }
  return Value::Of(std::move(items), Value::View::kRange);
}

Value MakeDict(Run& run, const Arguments& arguments, bool is_namespace) {
  Dict members;
  if (arguments.positional.size() > 1) run.Refuse("several values of dict", "one, and names");
  for (const Value& given : arguments.positional) {
    if (given.AsDict() != nullptr) {
      for (const auto& [key, value] : given.AsDict()->members) members.Set(run, key, value);
      continue;
    }
    if (given.IsUndefined()) run.Refuse("dict of what is not defined", "a dict or pairs");
    for (const Value& item : run.Items(given)) {
      List pair = run.Items(item);
      if (pair.size() != 2) run.Refuse("a part of a dict that is no pair", "a key and a value");
      run.CheckKey(pair[0]);
      members.Set(run, std::move(pair[0]), std::move(pair[1]));
    }
  }
  for (const auto& [name, value] : arguments.named) members.Set(run, Value::Of(name), value);
  return Value::Of(std::move(members), is_namespace);
}

Value MakePlainDict(Run& run, const Arguments& arguments) {
  return MakeDict(run, arguments, false);
}
Value MakeNamespace(Run& run, const Arguments& arguments) { return MakeDict(run, arguments, true); }

// %Z and %f are not those of C: the time is UTC, in whole seconds.
std::string WithZone(std::string_view format) {
  std::string made;
  for (size_t i = 0; i < format.size(); ++i) {
    const bool is_pair = format[i] == '%' && i + 1 < format.size();
    const std::string_view pair = format.substr(i, is_pair ? 2 : 1);
    made.append(pair == "%Z" ? "UTC" : pair == "%f" ? "000000" : pair);
    i += pair.size() - 1;
  }
  return made;
}

Value StrftimeNow(Run& run, const Arguments& arguments) {
  const std::string& format = StringArgument(run, arguments, 0, "format");
  if (format.size() > 1024) run.Refuse("a longer format", "at most 1024 bytes");
  run.Charge(2048);  // it takes microseconds
  if (format.find('\0') != std::string::npos) run.Refuse("a format with U+0000", "text without");
  const auto seconds = static_cast<std::time_t>(run.seconds().value_or(std::time(nullptr)));
  std::tm time = {};
  if (gmtime_r(&seconds, &time) == nullptr) {
    run.Refuse("the time " + std::to_string(seconds), "seconds of a year that 32 bits hold");
  }
  // A mark at the end, because an empty text and one without room look the same.
  std::string made(16384, '\0');
  const size_t size =
      std::strftime(made.data(), made.size(), (WithZone(format) + "|").c_str(), &time);
  if (size == 0) run.Refuse("a format of more than 16 KiB", "a shorter one");
  made.resize(size - 1);
  return run.Made(std::move(made));
}

Value Raise(Run& run, const Arguments& arguments) {
  run.Refuse(ToText(run, *arguments.Get(0, "message")), "a conversation that the template takes");
}

// Gives nothing once, then the separator.
Value MakeJoiner(Run&, const Arguments& arguments) {
  const Value* given = arguments.Get(0, "sep");
  const Value separator = given == nullptr ? Value::Of(std::string(", ")) : *given;
  const auto is_used = std::make_shared<bool>(false);
  return Value::Of(Function{"joiner",
                            [separator, is_used](Run&, const Arguments&) {
                              return std::exchange(*is_used, true) ? separator
                                                                   : Value::Of(std::string());
                            },
                            ""},
                   separator);
}

Value MakeCycler(Run& run, const Arguments& arguments) {
  if (!arguments.named.empty()) run.Refuse("a named argument of cycler", "items");
  if (arguments.positional.empty()) run.Refuse("a cycler of nothing", "items");
  return Value::OfCycler(arguments.positional);
}

Value NotHere(Run& run, const Arguments&) {
  run.Refuse("a call of lipsum or self", "another function");
}

}  // namespace

std::vector<std::pair<std::string_view, Value>> GlobalFunctions() {
  struct Row {
    std::string_view name;
    const char* parameters;
    Value (*call)(Run&, const Arguments&);
  };
  constexpr Row kRows[] = {
      {"cycler", nullptr, MakeCycler},        {"dict", nullptr, MakePlainDict},
      {"joiner", "sep?", MakeJoiner},         {"lipsum", nullptr, NotHere},
      {"namespace", nullptr, MakeNamespace},  {"raise_exception", "message", Raise},
      {"range", "/start stop? step?", Range}, {"self", nullptr, NotHere},
      {"strftime_now", "format", StrftimeNow}};
  std::vector<std::pair<std::string_view, Value>> made;
  for (const Row& row : kRows) {
    made.emplace_back(row.name,
                      Value::Of(Function{std::string(row.name), row.call, row.parameters}));
  }
  return made;
}

}  // namespace sluice::text::jinja
