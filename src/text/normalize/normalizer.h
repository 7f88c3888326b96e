// The steps on a text before it is cut into words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/normalize/charsmap.h"
#include "text/regex/regex.h"

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
    kSingleSpaces,  // none at the ends, one where there are many
    kCharsmap,
    kPrepend,
    kAppend,
    kBert,
    kByteLevel,
  };
  Kind kind;
  std::string pattern = {};
  std::string content = {};
  std::shared_ptr<const Regex> regex = {};  // instead of pattern
  std::shared_ptr<const Charsmap> charsmap = {};
  bool by_clusters = false;  // kCharsmap: as Hugging Face has it
  bool strip_left = false;
  bool strip_right = false;
  bool clean_text = false;
  bool spaces_chinese = false;
  bool strip_accents = false;
  bool lowercase = false;
};

// By so many bytes a text may grow in normalisation, all its parts together and what shrinks again
// included. Compatibility forms make 11 times as many bytes at the most, ByteLevel doubles them.
constexpr size_t GrowthOf(size_t text) { return (size_t{64} << 10) + 32 * text; }

// growth: by how much steps may make the text grow; what they take is taken off. Throws Error when
// they need more.
void Normalize(const std::vector<NormalizerStep>& steps, std::string& text, size_t& growth);

}  // namespace sluice::text
