// Normal forms are those of Python's unicodedata (tests/fixtures/make_normal_forms.py), in time
// that no text makes quadratic.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/text/timing.h"
#include "text/normalize/unicode.h"

namespace sluice::test {
namespace {

using text::NormalForm;

constexpr NormalForm kForms[] = {NormalForm::kNfc, NormalForm::kNfd, NormalForm::kNfkc,
                                 NormalForm::kNfkd};

TEST(NormalForm, EqualsUnicodedata) {
  const char* other = std::getenv("SLUICE_NORMAL_FORMS");  // more of them, from the same script
  simdjson::dom::parser parser;
  const simdjson::dom::element rows = parser.load(
      other != nullptr ? std::string(other) : std::string(SLUICE_FIXTURES) + "/normal_forms.json");
  size_t count = 0;
  for (const auto row : rows.get_array()) {
    const std::string_view text = row.at(0);
    for (size_t form = 0; form < 4; ++form) {
      const std::string_view expected = row.at(form + 1);
      ASSERT_EQ(text::ToNormalForm(kForms[form], text), expected) << row << " form " << form;
    }
    ++count;
  }
  EXPECT_GE(count, 400u);
}

// Between two letters stand a million marks, of classes that come in the wrong order.
TEST(NormalForm, TakesNoLongerForARunOfMarks) {
  for (const std::string_view marks :
       {"\u0300\u0316", "\u0316\u0300", "\u0301", "\u05b0\u0327\u0315\u0345"}) {
    std::string text = "a";
    while (text.size() < 1'000'000) text.append(marks);
    text.append("b");
    for (const NormalForm form : kForms) {
      EXPECT_TRUE(EndsWithin(10.0, [&] { text::ToNormalForm(form, text); }));
    }
  }
  std::string letters;
  while (letters.size() < 1'000'000) letters.append("\u1100\u1161\u11a8e\u0301\uac00");
  for (const NormalForm form : kForms) {
    EXPECT_TRUE(EndsWithin(10.0, [&] { text::ToNormalForm(form, letters); }));
  }
}

}  // namespace
}  // namespace sluice::test
