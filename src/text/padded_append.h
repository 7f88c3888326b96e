// Appends short bytes of which more can be read than there are.
#pragma once

#include <string>

#include "text/vocabulary.h"

namespace sluice::text {

// The size of a token is hard to predict, so short ones are copied as if they all had as many bytes
// as there is padding behind them, straight into the text: 12 ns become 5.
inline bool CanAppendPadded(size_t size, const std::string& text) {
  return size <= kArenaPadding && text.capacity() - text.size() >= kArenaPadding;
}
inline void AppendPadded(const char* bytes, size_t size, std::string& text) {
  const size_t end = text.size() + size;
  text.append(bytes, kArenaPadding);
  text.erase(end);
}

}  // namespace sluice::text
