// Unicode's normal forms: decomposition, marks in the order of their classes, composition, each in
// time (almost) linear in the text. utf8proc_map sorts marks by insertion, which is quadratic in a
// run of them: 32 KB of marks took it half a second.
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <memory>
#include <vector>

#include "support/check.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

using CodePoints = std::vector<utf8proc_int32_t>;

constexpr uint32_t kCodePoints = 0x110000;
constexpr size_t kLongestDecomposition = 32;  // Unicode's have at most 18

int ClassOf(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

void AppendDecomposition(uint32_t c, int options, CodePoints& out) {
  std::array<utf8proc_int32_t, kLongestDecomposition> parts;
  int boundary = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(), kLongestDecomposition,
                              static_cast<utf8proc_option_t>(options), &boundary);
  if (count < 0 || count > static_cast<utf8proc_ssize_t>(kLongestDecomposition)) {
    ThrowInvalid("text", utf8proc_errmsg(std::min<utf8proc_ssize_t>(count, 0)),
                 "text that can be normalised");
  }
  out.insert(out.end(), parts.begin(), parts.begin() + count);
}

// Marks between two starters in the order of their classes, those of one class as they came.
void SortMarks(CodePoints& text) {
  const auto is_less = [](utf8proc_int32_t a, utf8proc_int32_t b) {
    return ClassOf(a) < ClassOf(b);
  };
  for (auto at = text.begin(); at != text.end();) {
    if (ClassOf(*at) == 0) {
      ++at;
      continue;
    }
    const auto end = std::find_if(at, text.end(), [](auto c) { return ClassOf(c) == 0; });
    if (!std::is_sorted(at, end, is_less)) std::stable_sort(at, end, is_less);
    at = end;
  }
}

// In place; utf8proc goes through the text once. It takes U+11A7 for a letter that ends a syllable
// of Hangul and drops it, where Unicode begins with the one after it: it joins with nothing.
void Compose(CodePoints& text) {
  constexpr utf8proc_int32_t kJoinsNothing = 0x11A7;
  auto made = text.begin();
  for (auto at = text.begin(); at != text.end();) {
    const auto end = std::find(at, text.end(), kJoinsNothing);
    const utf8proc_ssize_t size = utf8proc_normalize_utf32(
        &*at, static_cast<utf8proc_ssize_t>(end - at),
        static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (size < 0) ThrowInvalid("text", utf8proc_errmsg(size), "text that can be normalised");
    made = std::move(at, at + size, made);
    if (end == text.end()) break;
    *made++ = kJoinsNothing;
    at = end + 1;
  }
  text.erase(made, text.end());
}

void AppendNormalized(std::string_view text, int options, bool composes, std::string& out) {
  CodePoints buffer;
  buffer.reserve(text.size());
  ForEachCharacter(text,
                   [&](uint32_t c, std::string_view) { AppendDecomposition(c, options, buffer); });
  SortMarks(buffer);
  if (composes) Compose(buffer);
  for (const utf8proc_int32_t c : buffer) AppendUtf8(static_cast<uint32_t>(c), out);
}

// Where a text may be cut, and its parts brought to NFC on their own: before a starter that NFC
// leaves as it is and that joins with nothing before it. What joins is the second part of a
// character's decomposition.
std::unique_ptr<const std::bitset<kCodePoints>> SafeInNfc() {
  auto safe = std::make_unique<std::bitset<kCodePoints>>();
  std::bitset<kCodePoints>& is_safe = *safe;
  is_safe.set();
  constexpr uint32_t kFirst = 0xC0;
  std::vector<std::pair<uint32_t, uint32_t>> begins;  // a character and its decomposition's first
  CodePoints parts;
  for (uint32_t c = kFirst; c < kCodePoints; ++c) {
    if (c >= 0xAC00 && c < 0xE000) continue;  // syllables of Hangul, and no characters
    parts.clear();
    AppendDecomposition(c, UTF8PROC_DECOMPOSE, parts);
    if (ClassOf(static_cast<utf8proc_int32_t>(c)) != 0) is_safe.reset(c);
    if (parts.size() == 1 && parts[0] == static_cast<utf8proc_int32_t>(c)) continue;
    begins.emplace_back(c, parts[0]);
    for (size_t i = 1; i < parts.size(); ++i) is_safe.reset(static_cast<uint32_t>(parts[i]));
    Compose(parts);
    if (parts.size() != 1 || parts[0] != static_cast<utf8proc_int32_t>(c)) is_safe.reset(c);
  }
  // Letters of Hangul join by rule, not by table.
  for (uint32_t c = 0x1100; c < 0x1200; ++c) is_safe.reset(c);
  for (const auto& [c, first] : begins) {
    if (!is_safe[first]) is_safe.reset(c);
  }
  return safe;
}

// Only what is between safe characters is taken apart: a tenth of the time for text with few marks.
std::string ToNfc(std::string_view text) {
  // 8 ms, once.
  static const std::unique_ptr<const std::bitset<kCodePoints>> kIsSafe = SafeInNfc();
  const std::bitset<kCodePoints>& is_safe = *kIsSafe;
  const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
  std::string out;
  out.reserve(text.size());
  size_t done = 0;           // copied
  size_t last = 0;           // the last safe character, if last >= done
  bool all_are_safe = true;  // since then
  size_t at = 0;
  ForEachCharacter(text, [&](uint32_t c, std::string_view bytes) {
    if (is_safe[c]) {
      if (!all_are_safe) {
        AppendNormalized(text.substr(last, at - last), options, true, out);
        done = at;
        all_are_safe = true;
      }
      last = at;
    } else if (all_are_safe) {
      out.append(text, done, last - done);
      done = last;
      all_are_safe = false;
    }
    at += bytes.size();
  });
  if (all_are_safe) return out.append(text.substr(done));
  AppendNormalized(text.substr(last), options, true, out);
  return out;
}

}  // namespace

std::string ToNormalForm(NormalForm form, std::string_view text) {
  const bool is_ascii =
      std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  if (is_ascii) return std::string(text);
  std::string out;
  out.reserve(text.size());
  switch (form) {
    case NormalForm::kNfc:
      return ToNfc(text);
    case NormalForm::kNfd:
      AppendNormalized(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, false, out);
      break;
    case NormalForm::kNfkc:
      AppendNormalized(text, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT, true, out);
      break;
    case NormalForm::kNfkd:
      AppendNormalized(text, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, false, out);
      break;
  }
  return out;
}

}  // namespace sluice::text
