// Regular expressions of tokenizer files, by PCRE2's compiler to machine code. Patterns keep the
// meaning of their authors: regex_dialect.h. A pattern is data from strangers: the steps of one
// pass over a text are limited to a number a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "text/regex/regex_dialect.h"

namespace sluice::text {

struct Span {
  size_t begin = 0;
  size_t end = 0;
};

class Regex {
 public:
  // Throws Error naming `parameter` when the pattern cannot be compiled.
  Regex(std::string_view parameter, std::string_view pattern,
        RegexDialect dialect = RegexDialect::kOniguruma);
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

    // The next match; false when there is none. Throws Error when the pattern takes more steps for
    // the text than kStepsPerByte allows.
    bool Next(Span* match);

   private:
    int Match(size_t at) const;

    // The work of the matcher: items of the pattern that it tried, and bytes that it went
    // through.
    struct Steps {
      uint64_t left;
      size_t place = 0;
    };

    const Regex& regex_;
    std::string_view text_;
    size_t at_ = 0;
    size_t last_end_ = SIZE_MAX;  // of a match
    Steps steps_;
    void* data_;  // pcre2_match_data
    void* context_;
  };

  // Every match replaced by `content`, literally; ends after more than `most` bytes. In an empty
  // text nothing matches, as Hugging Face has it.
  std::string ReplaceAll(std::string_view text, std::string_view content,
                         size_t most = SIZE_MAX) const;

 private:
  // The patterns of models that people use take 2 to 5.
  static constexpr uint64_t kStepsPerByte = 200;

  std::string parameter_;
  void* code_ = nullptr;  // pcre2_code
  bool has_jit_ = false;
  bool counts_steps_ = true;
  uint64_t least_steps_ = 0;  // for any text
};

}  // namespace sluice::text
