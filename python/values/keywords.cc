#include "python/values/keywords.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

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

// How many letters of `a`, small or not, have to be put in, taken out or replaced.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced =
          diagonal + (std::tolower(static_cast<unsigned char>(a[i])) == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// The keyword that may have been meant: at most a third of its letters differ. Empty: none.
std::string_view Nearest(Keywords allowed, std::string_view given) {
  std::string_view nearest;
  size_t least = SIZE_MAX;
  if (given.size() > 64) return nearest;
  for (size_t i = 0; i < kKeywordCount; ++i) {
    if (!allowed.Has(static_cast<Keyword>(i))) continue;
    const std::string_view name = kNames[i];
    const size_t distance = Distance(given, name);
    if (distance >= least || distance * 3 > name.size()) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

[[noreturn]] void ThrowUnknown(Keywords allowed, PyObject* name, PyObject* value) {
  std::string known;
  for (size_t i = 0; i < kKeywordCount; ++i) {
    if (allowed.Has(static_cast<Keyword>(i)))
      known.append(known.empty() ? "" : ", ").append(kNames[i]);
  }
  const auto given = nb::cast<std::string>(nb::handle(name));
  const std::string_view nearest = Nearest(allowed, given);
  ThrowType(given, Describe(value),
            (nearest.empty() ? "one of the keywords "
                             : "did you mean " + std::string(nearest) + "? The keywords are ") +
                known);
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
