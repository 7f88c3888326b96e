// What is done to a text before it is cut into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/regex.h"

namespace sluice::text {

struct NormalizerStep {
  enum class Kind : uint8_t {
    kNfc,
    kNfd,
    kNfkc,
    kNfkd,
    kLowercase,
    kStrip,
    kStripAccents,
    kReplace,
    kPrepend,
    kBert,
    kByteLevel,
  };
  Kind kind;
  std::string pattern = {};
  std::string content = {};
  std::shared_ptr<const Regex> regex = {};  // instead of pattern
  bool strip_left = false;
  bool strip_right = false;
  bool clean_text = false;
  bool spaces_chinese = false;
  bool strip_accents = false;
  bool lowercase = false;
};

// Throws Error when a step makes a text of more than `most` bytes.
void Normalize(const std::vector<NormalizerStep>& steps, std::string& text, size_t most = SIZE_MAX);

}  // namespace sluice::text
