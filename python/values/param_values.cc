#include "python/values/param_values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include "python/errors.h"
#include "python/values/numbers.h"

namespace sluice::python {
namespace {

template <typename Enum, size_t kSize>
struct Names {
  std::array<std::string_view, kSize> names;

  void Parse(std::string_view parameter, nb::handle value, Enum& to) const {
    std::string known;
    if (!PyUnicode_Check(value.ptr())) {
      ThrowType(parameter, Describe(value), "the name of a choice");
    }
    const auto name = nb::cast<std::string>(value);
    for (size_t i = 0; i < kSize; ++i) {
      if (names[i] == name) {
        to = static_cast<Enum>(i);
        return;
      }
      known.append(i == 0 ? "" : ", ").append(names[i]);
    }
    ThrowValue(parameter, "\"" + name + "\"", known);
  }
  std::string_view operator[](Enum value) const { return names[static_cast<size_t>(value)]; }
};
constexpr Names<DrawMethod, 2> kDrawMethods = {{"gumbel", "cdf"}};
constexpr Names<DraftMode, 2> kDraftModes = {{"match", "reject"}};
constexpr Names<LogprobMode, 4> kLogprobModes = {
    {"raw_logprobs", "raw_logits", "processed_logprobs", "processed_logits"}};

}  // namespace

void FromPython(std::string_view name, nb::handle value, int32_t& to, const ParamRange& range) {
  to = GetNumber<int32_t>(name, value,
                          {static_cast<int64_t>(range.low), static_cast<uint64_t>(range.high)});
}
void FromPython(std::string_view name, nb::handle value, float& to, const ParamRange&) {
  FromPython(name, value, to);
}
void FromPython(std::string_view name, nb::handle value, std::optional<int32_t>& to,
                const ParamRange& range) {
  to.reset();
  if (!value.is_none()) FromPython(name, value, to.emplace(), range);
}
void FromPython(std::string_view name, nb::handle value, std::optional<uint64_t>& to,
                const ParamRange&) {
  to.reset();
  if (!value.is_none()) to = GetNumber<uint64_t>(name, value);
}

void FromPython(std::string_view name, nb::handle value, float& to) {
  to = GetNumber<float>(name, value);
}
void FromPython(std::string_view name, nb::handle value, DrawMethod& to) {
  kDrawMethods.Parse(name, value, to);
}
void FromPython(std::string_view name, nb::handle value, DraftMode& to) {
  kDraftModes.Parse(name, value, to);
}
void FromPython(std::string_view name, nb::handle value, LogprobMode& to) {
  kLogprobModes.Parse(name, value, to);
}
void FromPython(std::string_view name, nb::handle value, Profile& to) {
  if (!PyUnicode_Check(value.ptr())) ThrowType(name, Describe(value), "the name of a profile");
  to = ProfileByName(nb::cast<std::string>(value));
}
void FromPython(std::string_view name, nb::handle value, TokenIds& to) {
  to = GetInts(name, value);
}
void FromPython(std::string_view name, nb::handle value, OptionalTokenIds& to) {
  to.reset();
  if (!value.is_none()) to = GetInts(name, value);
}
void FromPython(std::string_view name, nb::handle value, TokenSequences& to) {
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    ThrowType(name, Describe(value), "a list of lists of token ids");
  }
  to.clear();
  for (const nb::handle word : value) to.push_back(GetInts(name, word));
}
void FromPython(std::string_view name, nb::handle value, BiasEntries& to) {
  if (!PyDict_Check(value.ptr()))
    ThrowType(name, Describe(value), "a dict of token ids and biases");
  to.clear();
  for (const auto& [id, bias] : nb::borrow<nb::dict>(value)) {
    to.push_back({GetNumber<int32_t>(name, id), GetNumber<float>(name, bias)});
  }
}

nb::object ToPython(float value) {
  std::array<char, 32> text;
  const auto end = std::to_chars(text.begin(), text.end(), value).ptr;
  double shortest = value;
  if (std::isfinite(value)) std::from_chars(text.begin(), end, shortest);
  return nb::float_(shortest);
}
nb::object ToPython(int32_t value) { return nb::int_(value); }
nb::object ToPython(uint64_t value) { return nb::int_(value); }
nb::object ToPython(DrawMethod value) { return nb::cast(kDrawMethods[value]); }
nb::object ToPython(DraftMode value) { return nb::cast(kDraftModes[value]); }
nb::object ToPython(LogprobMode value) { return nb::cast(kLogprobModes[value]); }
nb::object ToPython(const Profile& value) {
  const auto* named = std::find_if(std::begin(kProfiles), std::end(kProfiles),
                                   [&](const NamedProfile& n) { return n.profile == value; });
  return nb::cast(named->name);  // no other profile comes in from Python
}
nb::object ToPython(const TokenIds& value) {
  nb::list list;
  for (const int32_t id : value) list.append(id);
  return list;
}
nb::object ToPython(const TokenSequences& value) {
  nb::list list;
  for (const TokenIds& word : value) list.append(ToPython(word));
  return list;
}
nb::object ToPython(const BiasEntries& value) {
  nb::dict dict;
  for (const BiasEntry& entry : value) dict[nb::int_(entry.id)] = ToPython(entry.bias);
  return dict;
}

}  // namespace sluice::python
