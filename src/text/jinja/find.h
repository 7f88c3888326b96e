// Text in text, in time linear in both: what std::string::find takes is their product, which a
// template can make as large as it likes.
//
// Knuth, Morris, Pratt: "Fast pattern matching in strings", 1977.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/run.h"

namespace sluice::text::jinja {

class Finder {
 public:
  // Charges the run for the needle; the caller charges it for the text.
  Finder(Run& run, std::string_view needle) : needle_(needle) {
    run.Charge(needle.size());
    if (needle.size() <= kShort) return;
    fallback_.assign(needle.size() + 1, 0);
    for (size_t i = 1, matched = 0; i < needle.size(); ++i) {
      while (matched > 0 && needle[i] != needle[matched]) matched = fallback_[matched];
      if (needle[i] == needle[matched]) ++matched;
      fallback_[i + 1] = static_cast<uint32_t>(matched);
    }
  }

  size_t size() const { return needle_.size(); }

  // The first place from `from` on; npos when there is none.
  size_t In(std::string_view text, size_t from = 0) const {
    if (fallback_.empty()) return text.find(needle_, from);
    size_t matched = 0;
    for (size_t i = from; i < text.size(); ++i) {
      while (matched > 0 && text[i] != needle_[matched]) matched = fallback_[matched];
      if (text[i] == needle_[matched]) ++matched;
      if (matched == needle_.size()) return i + 1 - matched;
    }
    return std::string_view::npos;
  }

 private:
  static constexpr size_t kShort = 16;  // as many steps for 16 bytes as one step is charged for

  std::string_view needle_;
  std::vector<uint32_t> fallback_;  // of so many matched bytes: how many still match
};

// The last place of the needle: both are read from the end.
inline size_t LastIn(Run& run, std::string_view text, std::string_view needle) {
  const std::string back_text(text.rbegin(), text.rend());
  const std::string back_needle(needle.rbegin(), needle.rend());
  run.Charge(text.size());
  const size_t at = Finder(run, back_needle).In(back_text);
  return at == std::string::npos ? at : text.size() - at - needle.size();
}

}  // namespace sluice::text::jinja
