#include "text/tokenizer/token_map.h"

#include "support/random_seed.h"

namespace sluice::text {

const HashSecrets& ProcessSecrets() {
  static const HashSecrets kSecrets = {RandomSeed(), RandomSeed() | 1};  // no key times 0
  return kSecrets;
}

std::array<int32_t, 256> ByteIds(const TokenMap& tokens) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::array<int32_t, 256> ids;
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    const char name[] = {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
    ids[byte] = tokens.Find({name, sizeof name});
  }
  return ids;
}

}  // namespace sluice::text
