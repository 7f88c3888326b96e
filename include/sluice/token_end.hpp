// Where a token ends in the text of a stream: what a detokeniser says and a stop scanner takes.
#pragma once

#include <cstddef>

namespace sluice {

struct TokenEnd {
  // The size of the text after the token.
  size_t text = 0;
  // How many of the last tokens up to this one have text that is not out after it: a part of a
  // character, say, or a run that is held back. They end where a later token does that leaves fewer
  // of them open.
  size_t open_tokens = 0;
};

}  // namespace sluice
