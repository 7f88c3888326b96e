// Regular expressions of tokenizer files, by PCRE2's compiler to machine code.
//
// Patterns mean what they mean to Hugging Face tokenizers: \s is Unicode's White_Space, \w its word
// characters, \d its decimal digits; PCRE2's own classes differ (U+180E, U+0085).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sluice::text {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  // Throws Error naming `parameter` when the pattern cannot be compiled.
  Regex(std::string_view parameter, std::string_view pattern);
  ~Regex();
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;

  // Goes through the matches in a text of valid UTF-8. One thread each.
  class Matches {
   public:
    Matches(const Regex& regex, std::string_view text);
    ~Matches();
    Matches(const Matches&) = delete;
    Matches& operator=(const Matches&) = delete;

    // The next match; false when there is none. Throws Error when the pattern takes too long.
    bool Next(Span* match);

   private:
    int Match(size_t at) const;

    const Regex& regex_;
    std::string_view text_;
    size_t at_ = 0;
    void* data_;  // pcre2_match_data
    void* context_;
  };

  // Every match replaced by `content`, literally; ends behind more than `most` bytes.
  std::string ReplaceAll(std::string_view text, std::string_view content,
                         size_t most = SIZE_MAX) const;

 private:
  std::string parameter_;
  void* code_ = nullptr;  // pcre2_code
  bool has_jit_ = false;
};

// `pattern` with \s, \w, \d and their complements spelled out.
std::string SpelledOut(std::string_view pattern);

}  // namespace sluice::text
