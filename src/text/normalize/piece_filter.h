// What a token must be to take the quick step, in one test: three branches would cost as much as
// the rest of it.
#pragma once

#include <bit>
#include <cstdint>

#include "sluice/text_stream.hpp"
#include "text/padded_append.h"
#include "text/tokenizer/vocabulary.h"

namespace sluice::text {

static_assert((kCopied & (kCopied + 1)) == 0);

inline PieceFilter::PieceFilter(uint8_t kinds)
    : fields_(std::bit_cast<uint64_t>(
          TokenEntry{.size = static_cast<uint16_t>(~kCopied), .flags = 0xFF, .kinds = kinds})) {}

inline bool PieceFilter::Passes(const TokenEntry& piece) const {
  constexpr auto kPlain = std::bit_cast<uint64_t>(TokenEntry{.flags = kPlainToken});
  return (std::bit_cast<uint64_t>(piece) & fields_) == kPlain;
}

}  // namespace sluice::text
