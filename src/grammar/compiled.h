// A compiled grammar, and the tokens it was compiled for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/library_impl.h"

namespace sluice::grammar {

// The engine prints a warning when it is given a token that no grammar can accept, so it is not.
struct TokenSet {
  std::vector<bool> may_come;  // has text, or is a stop token
  std::vector<int32_t> stops;
};

struct Compiled {
  std::shared_ptr<const LibraryImpl> library;
  std::shared_ptr<const TokenSet> tokens;
  Value handle;
  size_t bytes = 0;

  int32_t vocab() const { return static_cast<int32_t>(tokens->may_come.size()); }
};

}  // namespace sluice::grammar
