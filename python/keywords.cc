#include "python/keywords.h"

#include <string>

#include "python/errors.h"

namespace sluice::python {
namespace {

constexpr std::array<const char*, kKeywordCount> kNames = {
#define SLUICE_SELECT_PARAM(type, name, default_value, range, json, help) #name,
#define SLUICE_REQUEST_PARAM(type, name, default_value, range, json, help) #name,
#define SLUICE_OPTIONAL_PARAM(type, name, range, json, help) #name,
#define SLUICE_CHOICE_PARAM(type, name, default_value, json, help) #name,
#define SLUICE_LIST_PARAM(type, name, json, help) #name,
#include "sluice/params.def"
#define SLUICE_PYTHON_KEYWORD(name) #name,
    SLUICE_PYTHON_KEYWORDS(SLUICE_PYTHON_KEYWORD)
#undef SLUICE_PYTHON_KEYWORD
};

// Python interns the names of keywords too, so that nearly every search compares pointers only.
std::array<PyObject*, kKeywordCount> interned;

size_t Find(PyObject* name) {
  for (size_t i = 0; i < kKeywordCount; ++i) {
    if (interned[i] == name) return i;
  }
  for (size_t i = 0; i < kKeywordCount; ++i) {
    if (PyUnicode_CompareWithASCIIString(name, kNames[i]) == 0) return i;
  }
  return kKeywordCount;
}

[[noreturn]] void ThrowUnknown(Keywords allowed, PyObject* name, PyObject* value) {
  std::string known;
  for (size_t i = 0; i < kKeywordCount; ++i) {
    if (allowed.Has(static_cast<Keyword>(i)))
      known.append(known.empty() ? "" : ", ").append(kNames[i]);
  }
  ThrowType(nb::cast<std::string>(nb::handle(name)), Describe(value),
            "one of the keywords " + known);
}

}  // namespace

void InternKeywords() {
  for (size_t i = 0; i < kKeywordCount; ++i) interned[i] = PyUnicode_InternFromString(kNames[i]);
}

std::string_view NameOf(Keyword keyword) { return kNames[static_cast<size_t>(keyword)]; }

Arguments::Arguments(Keywords allowed, nb::kwargs kwargs) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (PyDict_Next(kwargs.ptr(), &at, &name, &value)) {
    const size_t index = Find(name);
    if (index == kKeywordCount || !allowed.Has(static_cast<Keyword>(index))) {
      ThrowUnknown(allowed, name, value);
    }
    if (value == Py_None) continue;
    values_[index] = value;
    given_.Add(static_cast<Keyword>(index));
  }
}

bool Arguments::Flag(Keyword keyword) const {
  const nb::handle value = (*this)[keyword];
  if (!value.is_valid()) return false;
  if (!PyBool_Check(value.ptr())) ThrowType(NameOf(keyword), Describe(value), "True or False");
  return value.is(Py_True);
}

}  // namespace sluice::python
