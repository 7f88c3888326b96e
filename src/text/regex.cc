#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <new>

#include "support/check.h"
#include "text/utf8.h"

namespace sluice::text {
namespace {

// Steps of the matcher for one match; a pre-tokeniser's pattern takes a handful a byte.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;

constexpr std::string_view kSpaces =
    R"(\t-\r\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view kNoSpaces =
    R"(\x00-\x08\x0E-\x1F\x21-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF})"
    R"(\x{200B}-\x{2027}\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{D7FF})"
    R"(\x{E000}-\x{10FFFF})";
constexpr std::string_view kWords = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

pcre2_code* CodeOf(void* code) { return static_cast<pcre2_code*>(code); }

std::string MessageOf(int error) {
  std::array<PCRE2_UCHAR, 256> message = {};
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

}  // namespace

std::string SpelledOut(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      std::string_view inside;
      bool is_complement = false;
      switch (next) {
        case 's':
          inside = kSpaces;
          break;
        case 'S':
          inside = in_class ? kNoSpaces : kSpaces;
          is_complement = !in_class;
          break;
        case 'w':
          inside = kWords;
          break;
        case 'W':
          inside = in_class ? std::string_view() : kWords;
          is_complement = true;
          break;
        case 'd':
          out.append(R"(\p{Nd})");
          continue;
        case 'D':
          out.append(R"(\P{Nd})");
          continue;
        default:
          break;
      }
      if (inside.empty()) {
        out.append({c, next});
      } else if (in_class) {
        out.append(inside);
      } else {
        out.append(is_complement ? "[^" : "[").append(inside).append("]");
      }
      continue;
    }
    if (!in_class && c == '[') {
      in_class = true;
      out.push_back(c);
      // A bracket that comes first in a class is one of its characters.
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out.push_back(pattern[++i]);
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out.append("\\]"), ++i;
      continue;
    }
    if (in_class && c == ']') in_class = false;
    out.push_back(c);
  }
  return out;
}

Regex::Regex(std::string_view parameter, std::string_view pattern) : parameter_(parameter) {
  if (!IsUtf8(pattern)) ThrowInvalid(parameter, "a pattern that is not UTF-8", "UTF-8");
  if (pattern.size() > 65536) ThrowInvalid(parameter, "a longer pattern", "at most 64 KiB");
  const std::string spelled = SpelledOut(pattern);
  int error = 0;
  size_t offset = 0;
  code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(),
                        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code_ == nullptr) {
    ThrowInvalid(parameter, ToText(pattern),
                 std::string("a pattern that PCRE2 compiles (").append(MessageOf(error)) + ")");
  }
  has_jit_ = pcre2_jit_compile(CodeOf(code_), PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() { pcre2_code_free(CodeOf(code_)); }

Regex::Matches::Matches(const Regex& regex, std::string_view text)
    : regex_(regex),
      text_(text),
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  auto* context = static_cast<pcre2_match_context*>(context_);
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_heap_limit(context, kHeapLimitKiB);
}

Regex::Matches::~Matches() {
  pcre2_match_data_free(static_cast<pcre2_match_data*>(data_));
  pcre2_match_context_free(static_cast<pcre2_match_context*>(context_));
}

int Regex::Matches::Match(size_t at) const {
  const auto* text = reinterpret_cast<PCRE2_SPTR>(text_.data());
  auto* data = static_cast<pcre2_match_data*>(data_);
  auto* context = static_cast<pcre2_match_context*>(context_);
  // The text is known to be UTF-8: looking again would cost a pass over it a match.
  if (regex_.has_jit_) {
    const int result =
        pcre2_jit_match(CodeOf(regex_.code_), text, text_.size(), at, 0, data, context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
  }
  return pcre2_match(CodeOf(regex_.code_), text, text_.size(), at,
                     PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, context);
}

bool Regex::Matches::Next(Span* match) {
  if (at_ > text_.size()) return false;
  const int result = Match(at_);
  if (result == PCRE2_ERROR_NOMATCH) {
    at_ = text_.size() + 1;
    return false;
  }
  if (result < 0) {
    throw Error(ErrorCode::kExhausted, regex_.parameter_, MessageOf(result),
                "a pattern that is done with this text sooner");
  }
  const size_t* ends = pcre2_get_ovector_pointer(static_cast<pcre2_match_data*>(data_));
  // \K can move the beginning anywhere.
  *match = {std::clamp(ends[0], at_, std::max(at_, ends[1])), std::max(at_, ends[1])};
  at_ = match->end;
  // Behind an empty match, the next one begins after one character at the earliest.
  if (match->end == match->begin) at_ += at_ < text_.size() ? FirstOf(text_.substr(at_)).size : 1;
  return true;
}

std::string Regex::ReplaceAll(std::string_view text, std::string_view content, size_t most) const {
  std::string out;
  size_t done = 0;
  Matches matches(*this, text);
  for (Span match; matches.Next(&match);) {
    out.append(text, done, match.begin - done).append(content);
    done = match.end;
    if (out.size() > most) return out;
  }
  return out.append(text, done);
}

}  // namespace sluice::text
