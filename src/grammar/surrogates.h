// Rules of grammars without the surrogates of UTF-16 in their classes of characters.
#pragma once

#include <string>

namespace sluice::grammar {

// `rules`: what the grammar engine writes. It takes U+D800 to U+DFFF for characters, as in
// "\xed\xa0\x80"; they are none in UTF-8, so a decoder reads each as three wrong bytes, and a
// string may then be longer than its maxLength. Here classes such as [^"] do not have them.
void ExcludeSurrogates(std::string& rules);

}  // namespace sluice::grammar
