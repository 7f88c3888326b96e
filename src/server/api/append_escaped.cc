// Texts are mostly clean: eight bytes are looked at together, and what needs no escape is copied in
// one piece.
#include <array>
#include <bit>
#include <cstring>

#include "server/api/response/stream_writer.h"

namespace sluice::server {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr uint64_t kOnes = 0x0101010101010101;
constexpr uint64_t kHighBits = 0x8080808080808080;

// The high bit of bytes that are below `bound`, exact up to the first one; bound <= 0x80.
constexpr uint64_t Below(uint64_t word, uint8_t bound) {
  return (word - kOnes * bound) & ~word & kHighBits;
}
constexpr uint64_t EscapedBytes(uint64_t word) {
  return Below(word, 0x20) | Below(word ^ (kOnes * '"'), 1) | Below(word ^ (kOnes * '\\'), 1);
}

constexpr bool IsEscaped(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\';
}

// Bytes up to the first one that is escaped.
size_t CleanSize(std::string_view text) {
  size_t at = 0;
  for (; text.size() - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
    uint64_t word;
    std::memcpy(&word, text.data() + at, sizeof word);
    const uint64_t escaped = EscapedBytes(word);
    if (escaped != 0) return at + static_cast<size_t>(std::countr_zero(escaped)) / 8;
  }
  while (at < text.size() && !IsEscaped(text[at])) ++at;
  return at;
}

void AppendEscape(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  constexpr std::string_view kNamed = "\"\\\n\r\t\b\f";
  constexpr std::string_view kNames = "\"\\nrtbf";
  const size_t named = kNamed.find(c);
  if (named != std::string_view::npos) {
    const std::array<char, 2> escape = {'\\', kNames[named]};
    out.append(escape.data(), escape.size());
    return;
  }
  const auto byte = static_cast<unsigned char>(c);
  const std::array<char, 6> escape = {'\\', 'u', '0', '0', kHex[byte >> 4], kHex[byte & 15]};
  out.append(escape.data(), escape.size());
}

}  // namespace

void AppendEscaped(std::string& out, std::string_view text) {
  while (true) {
    const size_t clean = CleanSize(text);
    out.append(text.data(), clean);
    if (clean == text.size()) return;
    AppendEscape(out, text[clean]);
    text.remove_prefix(clean + 1);
  }
}

}  // namespace sluice::server
