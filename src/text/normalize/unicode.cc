#include "text/normalize/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/normalize/special_case.h"
#include "text/normalize/utf8.h"

namespace sluice::text {
namespace {

utf8proc_category_t CategoryOf(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

const SpecialCase* SpecialCaseOf(uint32_t c) {
  if (c < kSpecialCases[0].character) return nullptr;
  const auto found = std::lower_bound(
      kSpecialCases.begin(), kSpecialCases.end(), c,
      [](const SpecialCase& special, uint32_t of) { return special.character < of; });
  return found != kSpecialCases.end() && found->character == c ? &*found : nullptr;
}

// What has a case and is no letter of that case: Other_Uppercase and Other_Lowercase.
using CharacterRange = std::pair<uint32_t, uint32_t>;
constexpr std::array<CharacterRange, 5> kOtherUpper = {{{0x2160, 0x216F},
                                                        {0x24B6, 0x24CF},
                                                        {0x1F130, 0x1F149},
                                                        {0x1F150, 0x1F169},
                                                        {0x1F170, 0x1F189}}};
constexpr std::array<CharacterRange, 24> kOtherLower = {
    {{0xAA, 0xAA},       {0xBA, 0xBA},       {0x2B0, 0x2B8},     {0x2C0, 0x2C1},
     {0x2E0, 0x2E4},     {0x345, 0x345},     {0x37A, 0x37A},     {0x1D2C, 0x1D6A},
     {0x1D78, 0x1D78},   {0x1D9B, 0x1DBF},   {0x2071, 0x2071},   {0x207F, 0x207F},
     {0x2090, 0x209C},   {0x2170, 0x217F},   {0x24D0, 0x24E9},   {0x2C7C, 0x2C7D},
     {0xA69C, 0xA69D},   {0xA770, 0xA770},   {0xA7F8, 0xA7F9},   {0xAB5C, 0xAB5F},
     {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA}}};

template <size_t kCount>
bool IsIn(const std::array<CharacterRange, kCount>& ranges, uint32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](CharacterRange range) { return c >= range.first && c <= range.second; });
}

}  // namespace

bool IsSpace(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool IsWordPart(uint32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:  // letters in circles are alphabetic symbols; the joiners join words
      return (c >= 0x24B6 && c <= 0x24E9) || c == 0x200C || c == 0x200D ||
             (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
             (c >= 0x1F170 && c <= 0x1F189);
  }
}

bool IsLetter(uint32_t c) {
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsNumber(uint32_t c) {
  const auto category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_NO;
}

bool IsDecimalDigit(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_ND; }

bool IsPunctuation(uint32_t c) {
  if (c < 0x80)
    return c > 0x20 && c < 0x7F && !(c >= '0' && c <= '9') &&
           !((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

bool IsControl(uint32_t c) {
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO;
}

bool IsPrintable(uint32_t c) {
  const auto category = CategoryOf(c);
  return c == ' ' || (category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS);
}

bool IsMark(uint32_t c) {
  const auto category = CategoryOf(c);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

bool IsNonspacingMark(uint32_t c) { return CategoryOf(c) == UTF8PROC_CATEGORY_MN; }

bool IsChinese(uint32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

LetterCase CaseOf(uint32_t c) {
  switch (CategoryOf(c)) {
    case UTF8PROC_CATEGORY_LL:
      return LetterCase::kLower;
    case UTF8PROC_CATEGORY_LU:
      return LetterCase::kUpper;
    case UTF8PROC_CATEGORY_LT:
      return LetterCase::kTitle;
    default:
      return IsIn(kOtherLower, c)   ? LetterCase::kLower
             : IsIn(kOtherUpper, c) ? LetterCase::kUpper
                                    : LetterCase::kNone;
  }
}

bool IsCased(uint32_t c) { return CaseOf(c) != LetterCase::kNone; }

bool IsCaseIgnorable(uint32_t c) {
  constexpr std::array<uint32_t, 17> kMarksInWords = {
      0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
      0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  const auto category = CategoryOf(c);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
         category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
         category == UTF8PROC_CATEGORY_SK ||
         std::find(kMarksInWords.begin(), kMarksInWords.end(), c) != kMarksInWords.end();
}

void AppendUpper(uint32_t c, std::string& text) {
  if (const SpecialCase* special = SpecialCaseOf(c)) {
    text.append(special->upper);
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))), text);
  }
}

void AppendTitle(uint32_t c, std::string& text) {
  if (const SpecialCase* special = SpecialCaseOf(c)) {
    text.append(special->title);
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))), text);
  }
}

void AppendLower(uint32_t c, std::string& text) {
  if (c < 0x80) {
    text.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c | 0x20 : c));
  } else if (c == 0x130) {  // the one character with two in lower case
    text.append("i\xCC\x87");
  } else {
    AppendUtf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), text);
  }
}

void AppendFolded(uint32_t c, std::string& text) {
  std::array<utf8proc_int32_t, 8> folded;
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(c), folded.data(), static_cast<utf8proc_ssize_t>(folded.size()),
      UTF8PROC_CASEFOLD, &boundary);
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    AppendUtf8(static_cast<uint32_t>(folded[static_cast<size_t>(i)]), text);
  }
}

}  // namespace sluice::text
