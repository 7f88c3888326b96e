#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex/regex.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <memory>
#include <new>

#include "support/check.h"
#include "text/normalize/utf8.h"
#include "text/regex/regex_patterns.h"

namespace sluice::text {
namespace {

// PCRE2 counts from zero for each place where a match may begin, and not what single characters
// repeat: its limit alone bounds nothing, and is there in case callouts are few.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;

pcre2_code* CodeOf(void* code) { return static_cast<pcre2_code*>(code); }

std::string MessageOf(int error) {
  std::array<PCRE2_UCHAR, 256> message = {};
  pcre2_get_error_message(error, message.data(), message.size());
  return reinterpret_cast<const char*>(message.data());
}

}  // namespace

Regex::Regex(std::string_view parameter, std::string_view pattern, RegexDialect dialect)
    : parameter_(parameter),
      counts_steps_(std::find(kLinearPatterns.begin(), kLinearPatterns.end(), pattern) ==
                    kLinearPatterns.end()) {
  if (!IsUtf8(pattern)) ThrowInvalid(parameter, "a pattern that is not UTF-8", "UTF-8");
  constexpr size_t kLongest = 8192;  // models' have up to 500 bytes
  if (pattern.size() > kLongest) {
    ThrowInvalid(parameter, "a pattern of " + std::to_string(pattern.size()) + " bytes",
                 "at most " + std::to_string(kLongest));
  }
  const std::string translated = ToPcre(parameter, pattern, dialect);
  least_steps_ = 1024 + 4 * translated.size();
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (context == nullptr) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  code_ = pcre2_compile(
      reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
      PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | (counts_steps_ ? PCRE2_AUTO_CALLOUT : 0),
      &error, &offset, context.get());
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
      steps_{regex.least_steps_ + kStepsPerByte * text.size()},
      data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  auto* context = static_cast<pcre2_match_context*>(context_);
  pcre2_set_match_limit(context, kMatchLimit);
  pcre2_set_heap_limit(context, kHeapLimitKiB);
  if (!regex.counts_steps_) return;
  // Called before each item of the pattern.
  pcre2_set_callout(
      context,
      [](pcre2_callout_block* block, void* data) {
        auto& steps = *static_cast<Steps*>(data);
        const size_t place = block->current_position;
        const size_t moved = place > steps.place ? place - steps.place : steps.place - place;
        steps.place = place;
        if (moved + 1 > steps.left) return PCRE2_ERROR_MATCHLIMIT;
        steps.left -= moved + 1;
        return 0;
      },
      &steps_);
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
  while (at_ <= text_.size()) {
    const int result = Match(at_);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      throw Error(ErrorCode::kExhausted, regex_.parameter_, MessageOf(result),
                  "a pattern that is done with this text sooner");
    }
    const size_t* ends = pcre2_get_ovector_pointer(static_cast<pcre2_match_data*>(data_));
    // \K can move the beginning anywhere.
    *match = {std::clamp(ends[0], at_, std::max(at_, ends[1])), std::max(at_, ends[1])};
    at_ = match->end;
    const bool is_empty = match->end == match->begin;
    // After an empty match, the next one begins after one character at the earliest.
    if (is_empty) at_ += at_ < text_.size() ? FirstOf(text_.substr(at_)).size : 1;
    // One that directly follows another match does not count.
    if (is_empty && match->end == last_end_) continue;
    last_end_ = match->end;
    return true;
  }
  at_ = text_.size() + 1;
  return false;
}

std::string Regex::ReplaceAll(std::string_view text, std::string_view content, size_t most) const {
  std::string out;
  if (text.empty()) return out;
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
