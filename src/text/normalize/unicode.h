// Properties of characters, as the files of tokenizers use them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

bool IsSpace(uint32_t c);         // White_Space
bool IsWordPart(uint32_t c);      // \w of regular expressions
bool IsLetter(uint32_t c);        // L*
bool IsNumber(uint32_t c);        // N*
bool IsDecimalDigit(uint32_t c);  // Nd
bool IsPunctuation(uint32_t c);   // P*, and what is punctuation in ASCII
bool IsControl(uint32_t c);       // Cc, Cf, Cs, Co
bool IsPrintable(uint32_t c);     // as Python's str.isprintable
bool IsMark(uint32_t c);          // M*
bool IsNonspacingMark(uint32_t c);
bool IsChinese(uint32_t c);  // the ideographs that BERT puts spaces around

enum class LetterCase : uint8_t { kNone, kLower, kUpper, kTitle };
LetterCase CaseOf(uint32_t c);     // Uppercase and Lowercase, or a title letter
bool IsCased(uint32_t c);          // has an upper or lower case
bool IsCaseIgnorable(uint32_t c);  // does not end a word in tests of case
void AppendUpper(uint32_t c, std::string& text);
void AppendTitle(uint32_t c, std::string& text);
void AppendLower(uint32_t c, std::string& text);
void AppendFolded(uint32_t c, std::string& text);  // as caseless comparison has it

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
std::string ToNormalForm(NormalForm form, std::string_view text);

}  // namespace sluice::text
