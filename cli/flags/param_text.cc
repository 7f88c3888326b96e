#include "cli/flags/param_text.h"

#include <charconv>
#include <limits>
#include <type_traits>
#include <vector>

#include "cli/flags/param_flags.h"
#include "cli/text.h"
#include "sluice/error.hpp"

namespace sluice::cli {
namespace {

// CLI11's own conversion lets "-1" and too many digits pass as an unsigned number, and rounds a
// float twice.
template <typename T>
bool Parse(std::string_view text, T& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

[[noreturn]] void Refuse(std::string_view name, const std::string& text, std::string allowed) {
  throw Error(ErrorCode::kInvalidValue, std::string(name), Quoted(text), std::move(allowed));
}

template <typename T>
void ParseNumber(std::string_view name, const std::string& text, T& value) {
  if (Parse(text, value)) return;
  std::string allowed = "a number";
  if constexpr (std::is_integral_v<T>) {
    using Bounds = std::numeric_limits<T>;
    allowed = "a whole number from " + Number(Bounds::min()) + " to " + Number(Bounds::max());
  }
  Refuse(name, text, allowed);
}

// The parts between separators; of an empty text none.
std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
    if (text.empty()) parts.push_back(text);
  }
  return parts;
}

template <typename Items, typename TextOf>
std::string Joined(const Items& items, char separator, TextOf text_of) {
  std::string text;
  for (const auto& item : items) {
    if (&item != &items.front()) text += separator;
    text += text_of(item);
  }
  return text;
}

std::string IdText(int32_t id) { return Number(id); }

}  // namespace

void FromText(std::string_view name, const std::string& text, float& value) {
  ParseNumber(name, text, value);
}
void FromText(std::string_view name, const std::string& text, int32_t& value) {
  ParseNumber(name, text, value);
}
void FromText(std::string_view name, const std::string& text, uint32_t& value) {
  ParseNumber(name, text, value);
}
void FromText(std::string_view name, const std::string& text, int64_t& value) {
  ParseNumber(name, text, value);
}
void FromText(std::string_view name, const std::string& text, uint64_t& value) {
  ParseNumber(name, text, value);
}
void FromText(std::string_view, const std::string& text, DrawMethod& value) {
  value = DrawMethodByName(text);
}
void FromText(std::string_view, const std::string& text, DraftMode& value) {
  value = DraftModeByName(text);
}
void FromText(std::string_view, const std::string& text, LogprobMode& value) {
  value = LogprobModeByName(text);
}
void FromText(std::string_view, const std::string& text, Profile& value) {
  value = ProfileByName(text);
}

void FromText(std::string_view name, const std::string& text, TokenIds& value) {
  value.clear();
  for (const std::string_view part : Split(text, ',')) {
    if (!Parse(part, value.emplace_back())) {
      Refuse(name, text, "token ids between commas, as in 1,2");
    }
  }
}

void FromText(std::string_view name, const std::string& text, TokenSequences& value) {
  value.clear();
  for (const std::string_view word : Split(text, ',')) {
    TokenIds& ids = value.emplace_back();
    for (const std::string_view part : Split(word, ':')) {
      if (!Parse(part, ids.emplace_back())) ids.clear();
      if (ids.empty()) break;
    }
    if (ids.empty()) {
      Refuse(name, text, "words between commas, their token ids between colons, as in 1:2,3");
    }
  }
}

void FromText(std::string_view name, const std::string& text, BiasEntries& value) {
  value.clear();
  for (const std::string_view part : Split(text, ',')) {
    const size_t colon = part.find(':');
    BiasEntry& entry = value.emplace_back();
    if (colon == std::string_view::npos || !Parse(part.substr(0, colon), entry.id) ||
        !Parse(part.substr(colon + 1), entry.bias)) {
      Refuse(name, text, "pairs of token id and bias between commas, as in 17:2.5,18:-100");
    }
  }
}

std::string ToText(float value) { return Number(value); }
std::string ToText(int32_t value) { return Number(value); }
std::string ToText(uint32_t value) { return Number(value); }
std::string ToText(int64_t value) { return Number(value); }
std::string ToText(uint64_t value) { return Number(value); }
std::string ToText(DrawMethod value) { return std::string(Name(value)); }
std::string ToText(DraftMode value) { return std::string(Name(value)); }
std::string ToText(LogprobMode value) { return std::string(Name(value)); }
std::string ToText(const Profile& value) { return std::string(NameOf(value)); }
std::string ToText(const TokenIds& value) { return Joined(value, ',', IdText); }
std::string ToText(const TokenSequences& value) {
  return Joined(value, ',', [](const TokenIds& word) { return Joined(word, ':', IdText); });
}
std::string ToText(const BiasEntries& value) {
  return Joined(value, ',', [](const BiasEntry& e) { return Number(e.id) + ":" + Number(e.bias); });
}

}  // namespace sluice::cli
