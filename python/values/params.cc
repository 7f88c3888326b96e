#include "python/values/params.h"

#include <limits>
#include <string>

#include "python/errors.h"
#include "python/values/param_values.h"
#include "python/values/signature.h"
#include "sluice/tensor.hpp"

namespace sluice::python {
namespace {

// Without a vocabulary and with any temperature.
void Check(const SamplingParams& params) {
  Validate(params, kMaxVocab, {std::numeric_limits<float>::max()});
}

bool AreEqual(const SamplingParams& a, const SamplingParams& b) {
  bool equal = true;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  equal = equal && a.name == b.name;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  equal = equal && a.name == b.name;
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) equal = equal && a.name == b.name;
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  equal = equal && a.name == b.name;
#define SLUICE_LIST_PARAM(type, name, json, help) equal = equal && a.name == b.name;
#include "sluice/params.def"
  return equal;
}

// The fields that differ from their defaults.
nb::dict Given(const SamplingParams& params) {
  const SamplingParams defaults;
  nb::dict given;
  auto add = [&given](const char* name, const auto& value, const auto& default_value) {
    if (!(value == default_value)) given[name] = ToPython(value);
  };
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  add(#name, params.name, defaults.name);
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  add(#name, params.name, defaults.name);
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) add(#name, params.name, defaults.name);
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  add(#name, params.name, defaults.name);
#define SLUICE_LIST_PARAM(type, name, json, help) add(#name, params.name, defaults.name);
#include "sluice/params.def"
  return given;
}

std::string Repr(const SamplingParams& params) {
  std::string text = "SamplingParams(";
  for (const auto& [name, value] : Given(params)) {
    if (text.back() != '(') text += ", ";
    text.append(nb::cast<std::string>(name)).append("=").append(nb::repr(value).c_str());
  }
  return text += ")";
}

// One field set by hand; the others are known to be good.
template <typename T, typename... Ranges>
void SetField(SamplingParams& self, T SamplingParams::* field, const char* name, nb::handle value,
              const Ranges&... range) {
  SamplingParams changed;
  FromPython(name, value, changed.*field, range...);
  Check(changed);
  self.*field = std::move(changed.*field);
}

SamplingParams FromKeywords(SamplingParams params, nb::kwargs kwargs) {
  Assign(Arguments(kParamKeywords, kwargs), params);
  return params;
}

nb::dict Described(const char* name, const char* type, nb::object default_value, nb::object range,
                   const char* json, const char* help) {
  nb::dict info;
  info["name"] = name;
  info["type"] = type;
  info["default"] = default_value;
  info["range"] = range;
  info["json"] = json;
  info["help"] = help;
  return info;
}
nb::object RangeObject(const ParamRange& range) {
  return nb::make_tuple(range.low, range.high, range.low_is_open ? "(]" : "[]");
}

nb::list Parameters() {
  const SamplingParams defaults;
  nb::list list;
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help)          \
  list.append(Described(#name, SLUICE_PYTHON_TYPE_##type, ToPython(defaults.name), \
                        RangeObject(range), json, help));
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help)         \
  list.append(Described(#name, SLUICE_PYTHON_TYPE_##type, ToPython(defaults.name), \
                        RangeObject(range), json, help));
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  list.append(                                               \
      Described(#name, SLUICE_PYTHON_TYPE_##type, nb::none(), RangeObject(range), json, help));
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help)                             \
  list.append(Described(#name, SLUICE_PYTHON_TYPE_##type, ToPython(defaults.name), nb::none(), \
                        json, help));
#define SLUICE_LIST_PARAM(type, name, json, help)                                              \
  list.append(Described(#name, SLUICE_PYTHON_TYPE_##type, ToPython(defaults.name), nb::none(), \
                        json, help));
#include "sluice/params.def"
  return list;
}

constexpr const char* kDoc =
    R"(All sampling parameters of a request; all fields are keywords with defaults.

    >>> params = sluice.SamplingParams(temperature=0.8, top_k=4, seed=42)
    >>> params
    SamplingParams(temperature=0.8, top_k=4, seed=42)
    >>> params.replace(top_k=0) == sluice.SamplingParams(temperature=0.8, seed=42)
    True

Real numbers are rounded to fp32 once. A value out of range is an Error:
)"
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) "\n" #name ": " help
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) "\n" #name ": " help
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) "\n" #name ": " help
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) "\n" #name ": " help
#define SLUICE_LIST_PARAM(type, name, json, help) "\n" #name ": " help
#include "sluice/params.def"
    ;

constexpr const char* kParametersDoc =
    R"(Every field of SamplingParams: name, type, default, range, JSON name and a line of help.

The range is (low, high, brackets), or None where a number's range is not what limits it.

    >>> sluice.parameters()[2]["name"], sluice.parameters()[2]["range"]
    ('top_p', (0.0, 1.0, '(]')))";

}  // namespace

IntRange WholeRangeOf(Keyword parameter) {
  auto whole = [](const ParamRange& range) {
    const bool fits = range.high < 0x1p64;  // that of a real parameter may not
    return IntRange{static_cast<int64_t>(range.low),
                    fits ? static_cast<uint64_t>(range.high) : UINT64_MAX};
  };
  switch (parameter) {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  case Keyword::name:                                                     \
    return whole(range);
#include "sluice/params.def"
    default:
      return {};
  }
}

#define SLUICE_ASSIGN(name, ...)                                                         \
  if (arguments.Has(Keyword::name)) {                                                    \
    FromPython(#name, arguments[Keyword::name], params.name __VA_OPT__(, ) __VA_ARGS__); \
  }

void Assign(const Arguments& arguments, SamplingParams& params) {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) SLUICE_ASSIGN(name, range)
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  SLUICE_ASSIGN(name, range)
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) SLUICE_ASSIGN(name, range)
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) SLUICE_ASSIGN(name)
#define SLUICE_LIST_PARAM(type, name, json, help) SLUICE_ASSIGN(name)
#include "sluice/params.def"
  Check(params);
}

void CheckStateless(const SamplingParams& params) {
  const SamplingParams defaults;
  auto check = [](const char* name, const auto& value, const auto& default_value) {
    if (value == default_value) return;
    ThrowValue(name, nb::repr(ToPython(value)).c_str(),
               std::string(nb::repr(ToPython(default_value)).c_str()) +
                   " in a call without a history; use sluice.Sampler");
  };
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  check(#name, params.name, defaults.name);
#define SLUICE_LIST_PARAM(type, name, json, help) check(#name, params.name, defaults.name);
#include "sluice/params.def"
}

void CheckStateless(const Arguments& arguments) {
  if (!arguments.HasAny(kStateKeywords)) return;
  SamplingParams params;
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  SLUICE_ASSIGN(name, range)
#define SLUICE_LIST_PARAM(type, name, json, help) SLUICE_ASSIGN(name)
#include "sluice/params.def"
  CheckStateless(params);
}
#undef SLUICE_ASSIGN

void BindParams(nb::module_& module) {
  nb::class_<SamplingParams> type(module, "SamplingParams", kDoc);
  type.def(
          "__init__",
          [](SamplingParams* self, nb::kwargs kwargs) {
            new (self) SamplingParams(FromKeywords({}, kwargs));
          },
          nb::sig(RequestSignature("def __init__(self, *", "None")))
      .def("replace", FromKeywords, nb::arg("changes"),
           nb::sig("def replace(self, **changes: typing.Any) -> SamplingParams"),
           R"(A copy with some fields changed.

    >>> sluice.SamplingParams(top_k=4).replace(top_p=0.9)
    SamplingParams(top_k=4, top_p=0.9))")
      .def("__repr__", Repr)
      .def(
          "__eq__",
          [](const SamplingParams& self, nb::handle other) -> nb::object {
            if (!nb::isinstance<SamplingParams>(other)) {
              return nb::borrow(Py_NotImplemented);
            }
            return nb::bool_(AreEqual(self, nb::cast<const SamplingParams&>(other)));
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__getstate__", Given, nb::sig("def __getstate__(self) -> dict[str, typing.Any]"))
      .def(
          "__setstate__",
          [](SamplingParams& self, nb::dict state) {
            new (&self) SamplingParams(FromKeywords({}, nb::borrow<nb::kwargs>(state)));
          },
          nb::arg("state"),
          nb::sig("def __setstate__(self, state: dict[str, typing.Any]) -> None"));
  type.attr("__hash__") = nb::none();  // fields can be set

#define SLUICE_FIELD(type_text, name, help, ...)                                        \
  type.def_prop_rw(                                                                     \
      #name, [](const SamplingParams& self) { return ToPython(self.name); },            \
      [](SamplingParams& self, nb::handle value) {                                      \
        SetField(self, &SamplingParams::name, #name, value __VA_OPT__(, ) __VA_ARGS__); \
      },                                                                                \
      nb::for_getter(nb::sig("def " #name "(self) -> " type_text)),                     \
      nb::for_setter(nb::sig("def " #name "(self, value: " type_text ", /) -> None")),  \
      nb::for_setter(nb::arg("value").none()), help);
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) \
  SLUICE_FIELD(SLUICE_PYTHON_TYPE_##type, name, help, range)
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) \
  SLUICE_FIELD(SLUICE_PYTHON_TYPE_##type, name, help, range)
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) \
  SLUICE_FIELD(SLUICE_PYTHON_TYPE_##type " | None", name, help, range)
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) \
  SLUICE_FIELD(SLUICE_PYTHON_TYPE_##type, name, help)
#define SLUICE_LIST_PARAM(type, name, json, help) \
  SLUICE_FIELD(SLUICE_PYTHON_TYPE_##type, name, help)
#include "sluice/params.def"
#undef SLUICE_FIELD

  module.def("parameters", Parameters, nb::sig("def parameters() -> list[dict[str, typing.Any]]"),
             kParametersDoc);
}

}  // namespace sluice::python
