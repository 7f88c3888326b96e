// How much memory the masks of a grammar may take, before any of them is made.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace sluice::grammar {

// Of a vocabulary: how many tokens begin with each byte.
using FirstBytes = std::array<int64_t, 256>;
FirstBytes CountFirstBytes(std::span<const std::string_view> tokens);

// `rules`: as the grammar engine writes them, with those of RewriteBoundedStrings where
// `has_chains`. A mask is made for each byte of a literal and each class of characters, and once
// more for each repetition; beyond 128 the engine counts. A mask has lists of tokens that begin
// with one of the bytes that may come, or a bit for each token. So this is more than what is taken,
// often many times. At most 2^50.
int64_t EstimateMaskBytes(std::string_view rules, bool has_chains, const FirstBytes& first_bytes);

}  // namespace sluice::grammar
