// How a text is cut into pieces; the model encodes each on its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "text/regex/regex.h"

namespace sluice::text {

// The treatment of the text that matches.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // neighbouring matches are one piece
};

// Whether a space is put before a piece that has none.
enum class PrependScheme : uint8_t { kAlways, kFirst, kNever };

struct PreTokenizerStep {
  enum class Kind : uint8_t {
    kRegex,
    kText,       // a literal pattern
    kByteLevel,  // cuts nothing; the space in front only
    kMetaspace,
    kDigits,
    kPunctuation,
    kSpaces,
  };
  Kind kind;
  std::shared_ptr<const Regex> regex = {};
  std::string pattern = {};  // kMetaspace: what stands for a space
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool is_inverted = false;  // what does not match counts as match
  bool splits = true;        // kMetaspace: cut before every mark
  PrependScheme prepend = PrependScheme::kNever;
  bool maps_bytes = false;  // pieces become the characters that stand for their bytes
};

struct Pieces {
  std::string text;
  std::vector<Span> spans;          // ascending, none empty
  bool begins_at_the_start = true;  // the first span is the beginning of what was to be encoded
};

void PreTokenize(const std::vector<PreTokenizerStep>& steps, Pieces& pieces);

}  // namespace sluice::text
