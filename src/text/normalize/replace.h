// Text replaced by text, as normalisers and decoders do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::text {

// Every `pattern` replaced by `content`; ends after more than `most` bytes.
inline void ReplaceAll(std::string& text, std::string_view pattern, std::string_view content,
                       size_t most = SIZE_MAX) {
  if (pattern.empty() || text.find(pattern) == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (size_t at = text.find(pattern); at != std::string::npos && out.size() <= most;
       at = text.find(pattern, done)) {
    out.append(text, done, at - done).append(content);
    done = at + pattern.size();
  }
  text = std::move(out.append(text, done));
}

}  // namespace sluice::text
