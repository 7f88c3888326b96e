#include "text/normalize/charsmap.h"

#include <utf8proc.h>

#include <utility>

#include "support/check.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

uint32_t Word(std::string_view bytes, size_t at) {
  uint32_t word = 0;
  for (size_t i = 4; i-- > 0;) word = word << 8 | static_cast<uint8_t>(bytes[at + i]);
  return word;
}

// Fields of a unit.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & 0x800000FF; }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view parameter, std::string_view blob, LongestMatcher kept)
    : kept_(std::move(kept)) {
  const auto refuse = [&] {
    ThrowInvalid(parameter, "malformed", "a map of characters as SentencePiece writes it");
  };
  if (blob.size() < 4) refuse();
  const size_t size = Word(blob, 0);
  if (size > blob.size() - 4 || size % 4 != 0 || size == 0) refuse();
  units_.resize(size / 4);
  for (size_t i = 0; i < units_.size(); ++i) units_[i] = Word(blob, 4 + 4 * i);
  texts_ = blob.substr(4 + size);
  if (!IsUtf8(texts_)) refuse();
  texts_.push_back('\0');
}

std::optional<Charsmap::Found> Charsmap::Find(std::string_view text, bool is_longest) const {
  std::optional<Found> found;
  size_t node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    const size_t value = node < units_.size() ? ValueOf(units_[node]) : texts_.size();
    // A place inside a character would not be one that the library writes.
    if (value >= texts_.size() || IsContinuation(static_cast<uint8_t>(texts_[value]))) break;
    const std::string_view rest = std::string_view(texts_).substr(value);
    found = Found{rest.substr(0, rest.find('\0')), i + 1};
    if (!is_longest) break;
  }
  return found;
}

void Charsmap::AppendLongest(std::string_view text, size_t most, std::string& out) const {
  std::vector<std::pair<size_t, size_t>> kept;  // places and sizes, the last one first
  if (!kept_.IsEmpty()) {
    kept_.ForEachFromTheEnd(
        text, [&](size_t at, int32_t size) { kept.emplace_back(at, static_cast<size_t>(size)); });
  }
  const char* const first = text.data();
  while (!text.empty() && out.size() <= most) {
    const auto at = static_cast<size_t>(text.data() - first);
    while (!kept.empty() && kept.back().first < at) kept.pop_back();
    if (!kept.empty() && kept.back().first == at) {
      out.append(text.substr(0, kept.back().second));
      text.remove_prefix(kept.back().second);
      continue;
    }
    // The map ends between characters, or it is not one that the library writes.
    auto found = Find(text, true);
    if (found && found->size < text.size() &&
        IsContinuation(static_cast<uint8_t>(text[found->size]))) {
      found.reset();
    }
    const size_t size = found ? found->size : FirstOf(text).size;
    out.append(found ? found->becomes : text.substr(0, size));
    text.remove_prefix(size);
  }
}

void Charsmap::AppendByClusters(std::string_view text, size_t most, std::string& out) const {
  constexpr size_t kLongestWhole = 5;
  while (!text.empty() && out.size() <= most) {
    // A cluster ends where the next one may begin.
    utf8proc_int32_t state = 0;
    CodePoint c = FirstOf(text);
    size_t size = c.size;
    while (size < text.size()) {
      const CodePoint next = FirstOf(text.substr(size));
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(c.value),
                                           static_cast<utf8proc_int32_t>(next.value), &state)) {
        break;
      }
      size += next.size;
      c = next;
    }
    const std::string_view cluster = text.substr(0, size);
    text.remove_prefix(size);
    if (size <= kLongestWhole) {
      if (const auto found = Find(cluster, false)) {
        out.append(found->becomes);
        continue;
      }
    }
    ForEachCharacter(cluster, [&](uint32_t, std::string_view bytes) {
      const auto found = Find(bytes, false);
      out.append(found ? found->becomes : bytes);
    });
  }
}

}  // namespace sluice::text
