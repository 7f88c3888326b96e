#include "grammar/bounded_strings.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "support/number.h"

namespace sluice::grammar {
namespace {

constexpr std::string_view kCharacter = R"([^\0-\x1f\"\\])";
constexpr std::string_view kIs = " ::= ";
constexpr std::string_view kCharacters = "_characters";
constexpr std::string_view kAllowing = R"((([^\"\\\r\n])))";  // the engine's rule for a character
// What may come after a string of JSON, for tokens that end one and go on.
constexpr std::string_view kAfter = R"( (=([ \n\r\t,}\]:])))";

// Strings by the fewest and the most characters that are still to come.
struct Bounds {
  int64_t least = 0;
  int64_t most = 0;
  friend auto operator<=>(const Bounds&, const Bounds&) = default;
};

bool Skip(std::string_view prefix, std::string_view& text) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

std::optional<int64_t> Take(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// Of a line such as NAME ::= (("\"" NAME_characters{1, 20} "\"")).
std::optional<Bounds> BoundsOf(std::string_view name, std::string_view rule) {
  if (!Skip(R"((("\"" )", rule) || !Skip(name, rule) || !Skip(kCharacters, rule)) return {};
  if (!Skip("{", rule)) return {};
  const std::optional<int64_t> least = Take(rule);
  if (!least.has_value() || !Skip(", ", rule)) return {};
  const std::optional<int64_t> most = Take(rule);
  if (!most.has_value() || rule != R"(} "\"")))" || *least > *most) return {};
  return Bounds{*least, *most};
}

std::string NameOf(const Bounds& bounds) {
  return std::string(kChainName) + Number(bounds.least) + "_" + Number(bounds.most);
}

Bounds Next(const Bounds& bounds) {
  return {std::max<int64_t>(bounds.least - 1, 0), bounds.most - 1};
}

std::string RestRule(const Bounds& bounds, AfterString after) {
  std::string rule = NameOf(bounds).append(kIs).append("(");
  if (bounds.least == 0) rule.append(R"(("\""))");
  if (bounds.least == 0 && bounds.most > 0) rule.append(" | ");
  if (bounds.most > 0) {
    rule.append("(").append(kCharacter).append(" ").append(NameOf(Next(bounds))).append(")");
  }
  return rule.append(")").append(after == AfterString::kJson ? kAfter : "").append("\n");
}

// Those that `rests` does not have. False, and nothing has changed: they would be too large.
bool AddRests(const Bounds& bounds, AfterString after, size_t most_bytes, size_t& bytes,
              std::map<Bounds, std::string>& rests) {
  std::map<Bounds, std::string> added;
  size_t size = bytes;
  for (Bounds rest = bounds; rest.most >= 0 && !rests.contains(rest); rest = Next(rest)) {
    std::string rule = RestRule(rest, after);
    size += rule.size();
    if (size > most_bytes) return false;
    added.emplace(rest, std::move(rule));
  }
  rests.merge(added);
  bytes = size;
  return true;
}

}  // namespace

bool RewriteBoundedStrings(AfterString after, size_t most_bytes, std::string& rules) {
  std::string written;
  std::map<Bounds, std::string> rests;  // their rules
  size_t bytes = rules.size();
  std::set<std::string, std::less<>> unused;
  bool has_changed = false;
  std::string_view left = rules;
  while (!left.empty()) {
    const std::string_view line = left.substr(0, std::min(left.find('\n'), left.size()));
    left.remove_prefix(std::min(line.size() + 1, left.size()));
    const size_t at = line.find(kIs);
    const std::string_view name = line.substr(0, std::min(at, line.size()));
    const std::string_view rule =
        at == std::string_view::npos ? std::string_view() : line.substr(at + kIs.size());
    if (name.ends_with(kCharacters) && rule == kAllowing) {
      has_changed = true;
      if (unused.contains(name)) continue;
      written.append(name).append(kIs).append("((").append(kCharacter).append("))\n");
      continue;
    }
    const std::optional<Bounds> bounds = BoundsOf(name, rule);
    if (!bounds.has_value() || bounds->most > kLongestChain ||
        !AddRests(*bounds, after, most_bytes, bytes, rests)) {
      written.append(line).append("\n");
      continue;
    }
    has_changed = true;
    unused.insert(std::string(name).append(kCharacters));
    written.append(name).append(kIs).append(R"((("\"" )").append(NameOf(*bounds)).append("))\n");
  }
  if (!has_changed) return false;
  for (const auto& [bounds, rule] : rests) written.append(rule);
  rules = std::move(written);
  return true;
}

}  // namespace sluice::grammar
