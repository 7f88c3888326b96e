// Parts of the tokenizer beside what defines them: normal forms keep what Unicode says of them, and
// the longest patterns at each place are those that trying all of them finds.
#include <string>
#include <vector>

#include "sluice/error.hpp"
#include "tests/fuzz/bytes.h"
#include "text/normalize/unicode.h"
#include "text/normalize/utf8.h"
#include "text/tokenizer/longest_match.h"

namespace sluice::fuzz {
namespace {

using text::LongestMatcher;
using text::NormalForm;

void CheckForms(std::string_view text) {
  const auto form = [](NormalForm to, std::string_view of) { return text::ToNormalForm(to, of); };
  const std::string nfc = form(NormalForm::kNfc, text);
  const std::string nfd = form(NormalForm::kNfd, text);
  const std::string nfkc = form(NormalForm::kNfkc, text);
  Check(text::IsUtf8(nfc) && text::IsUtf8(nfd) && text::IsUtf8(nfkc));
  Check(form(NormalForm::kNfc, nfc) == nfc);
  Check(form(NormalForm::kNfd, nfd) == nfd);
  Check(form(NormalForm::kNfc, nfd) == nfc);
  Check(form(NormalForm::kNfd, nfc) == nfd);
  Check(form(NormalForm::kNfkc, nfc) == nfkc);
  Check(form(NormalForm::kNfkc, form(NormalForm::kNfkd, text)) == nfkc);
}

// Lines are patterns, the last one is the text.
void CheckMatches(std::string_view data) {
  std::vector<LongestMatcher::Pattern> patterns;
  for (size_t at = 0; (at = data.find('\n')) != std::string_view::npos && patterns.size() < 20;) {
    patterns.push_back({data.substr(0, at), static_cast<int32_t>(patterns.size())});
    data.remove_prefix(at + 1);
  }
  const LongestMatcher matcher("patterns", patterns);
  std::vector<int32_t> found(data.size(), -1);
  matcher.ForEachFromTheEnd(data, [&](size_t at, int32_t value) { found[at] = value; });
  for (size_t at = 0; at < data.size(); ++at) {
    int32_t longest = -1;
    size_t size = 0;
    for (const LongestMatcher::Pattern& pattern : patterns) {
      if (pattern.bytes.size() <= size || !data.substr(at).starts_with(pattern.bytes)) continue;
      longest = pattern.value;
      size = pattern.bytes.size();
    }
    Check(found[at] == longest);
  }
}

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  sluice::fuzz::CheckMatches(bytes.substr(0, 2000));
  const std::string_view text = bytes.substr(0, sluice::text::ValidPrefix(bytes));
  sluice::fuzz::CheckForms(text);
  return 0;
}
