// Appends short bytes of which more can be read than there are.
#pragma once

#include <string>

#include "text/tokenizer/vocabulary.h"

namespace sluice::text {

// As many as an empty string has room for.
inline constexpr size_t kCopied = 15;
static_assert(kCopied <= kArenaPadding);

// The size of a token is hard to predict, so short ones are copied as if they all had as many bytes
// as their padding, straight into the text: 12 ns become 5. The test is append's own: where the
// answer is known, the compiler leaves out what makes room.
inline bool HasRoomForPadded(const std::string& text) {
  return text.size() + kCopied <= text.capacity();
}
inline bool CanAppendPadded(size_t size, const std::string& text) {
  return size <= kCopied && HasRoomForPadded(text);
}
inline void AppendPadded(const char* bytes, size_t size, std::string& text) {
  // No capacity is larger; append would test that again.
  if (text.size() > text.max_size() - kCopied) __builtin_unreachable();
  const size_t end = text.size() + size;
  text.append(bytes, kCopied);
  text.erase(end);
}

}  // namespace sluice::text
