#include "cli/flags/params_table.h"

#include <string>
#include <vector>

#include "cli/flags/param_flags.h"
#include "cli/flags/param_text.h"
#include "cli/table.h"
#include "cli/text.h"
#include "json/writer.h"
#include "semantics/validate.h"

namespace sluice::cli {
namespace {

struct Parameter {
  std::string name;  // of the field, in C++, C and Python
  std::string group;
  std::string type;
  std::string default_value;  // empty: unset, or an empty list
  std::string range;          // empty: what its type says
  std::string json;
  std::string help;

  std::string CField() const { return group == "optional" ? "has_" + name + ", " + name : name; }
};

std::string RangeText(const semantics::Range& range, bool is_whole) {
  constexpr double kLargestFloat = 0x1.fffffep+127;
  auto text_of = [&](double value) {
    if (is_whole && value >= 0x1p64) return Number(UINT64_MAX);
    if (is_whole) return Number(static_cast<int64_t>(value));
    return value >= kLargestFloat ? std::string("3.4028235e+38")
                                  : Number(static_cast<float>(value));
  };
  return std::string(range.low_is_open ? "(" : "[")
      .append(text_of(range.low))
      .append(", ")
      .append(text_of(range.high))
      .append("]");
}

std::string TypeText(std::string_view type) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"float", "float"},
      {"int32_t", "int"},
      {"uint64_t", "uint64"},
      {"DrawMethod", "choice"},
      {"DraftMode", "choice"},
      {"LogprobMode", "choice"},
      {"Profile", "name, or switches"},
      {"TokenIds", "ids"},
      {"OptionalTokenIds", "ids"},
      {"TokenSequences", "lists of ids"},
      {"BiasEntries", "id to float"},
  };
  for (const auto& [name, word] : kWords) {
    if (name == type) return std::string(word);
  }
  return std::string(type);
}

std::string InCode(const std::string& text) { return std::string("`").append(text).append("`"); }

std::vector<Parameter> Parameters() {
  std::vector<Parameter> all;
  const SamplingParams usual;
  auto add = [&](const char* group, const char* type, const char* name, std::string value,
                 std::string range, const char* json, const char* help) {
    all.push_back({name, group, TypeText(type), std::move(value), std::move(range), json, help});
  };
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help)                        \
  add("selection", #type, #name, ToText(usual.name), RangeText(range, std::is_integral_v<type>), \
      json, help);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help)                         \
  add("adjustments", #type, #name, ToText(usual.name), RangeText(range, std::is_integral_v<type>), \
      json, help);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  add("optional", #type, #name, "", RangeText(range, true), json, help);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  add("choice", #type, #name, ToText(usual.name), "", json, help);
#define SLUICE_LIST_PARAM(type, name, json, help) add("list", #type, #name, "", "", json, help);
#include "sluice/params.def"
  return all;
}

}  // namespace

void PrintParams(std::ostream& out, const Terminal& terminal) {
  Table table("llllll");
  table.Add({"flag", "type", "default", "range", "JSON", "help"}, Style::kHeading);
  for (const Parameter& p : Parameters()) {
    table.Add({FlagName(p.name), p.type, p.default_value, p.range, p.json, p.help});
  }
  table.Print(out, terminal);
  out << "The field and the Python keyword of --top-k are top_k, its variable is SLUICE_TOP_K.\n";
}

void PrintParamsJson(std::ostream& out) {
  JsonWriter json(out);
  json.Object([&] {
    json.Key("parameters").Array([&] {
      for (const Parameter& p : Parameters()) {
        json.Object([&] {
          json.Key("name").Value(p.name);
          json.Key("type").Value(p.type);
          json.Key("default").Value(p.default_value);
          json.Key("range").Value(p.range);
          json.Key("json").Value(p.json);
          json.Key("flag").Value(FlagName(p.name));
          json.Key("environment").Value(EnvironmentName(p.name));
          json.Key("c").Value(p.CField());
          json.Key("python").Value(p.name);
          json.Key("help").Value(p.help);
        });
      }
    });
  });
  out << '\n';
}

void PrintParamsMarkdown(std::ostream& out) {
  out << R"(# Sampling parameters

<!-- Written by `sluice inspect params --markdown`; a test compares. Edit include/sluice/params.def. -->

Every parameter and what each surface calls it, from
[params.def](../include/sluice/params.def), which the structs, the validation, JSON, the flags and
this page are expanded from. [semantics.md](semantics.md) says what each does. JSON names are those of
OpenAI and vLLM where these have one. Default `-` is unset, or an empty list. In C an optional
parameter is a pair of fields. A model's own values come before these defaults:
[where parameters start](python-engine.md#where-parameters-start).

| name, Python keyword | type | default | range | JSON | flag | environment | C field | what it does |
|---|---|---|---|---|---|---|---|---|
)";
  for (const Parameter& p : Parameters()) {
    out << "| `" << p.name << "` | " << p.type << " | "
        << (p.default_value.empty() ? "-" : InCode(p.default_value)) << " | " << p.range << " | `"
        << p.json << "` | `" << FlagName(p.name) << "` | `" << EnvironmentName(p.name) << "` | `"
        << p.CField() << "` | " << p.help << " |\n";
  }
  out << R"(
As JSON a parameter set is one object, which `--params FILE.json` reads (`-` is standard input). `null`
is as good as absent, a whole number may be written `5.0`, unknown fields are listed and left alone.
`logit_bias` is `{"17": 2.5}`, or `[[17, 2.5]]`, which may name an id twice. `profile` is a name, or an
object of the switches `ties`, `top_k_top_p`, `min_p_stage`, `top_p_boundary`, `penalty_scope` and
`temperature_stage`, each with the values of [profile.hpp](../include/sluice/profile.hpp) in snake case.

In Python `profile` is a name, `logit_bias` a dict, the other lists are sequences, and unset is `None`.

On the command line, lists are `1,2`, words `1:2,3` (the tokens of a word by colons), and biases
`17:2.5,18:-100`. Flags override variables, and both override `--params`.
)";
}

}  // namespace sluice::cli
