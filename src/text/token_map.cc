#include "text/token_map.h"

#include "support/random_seed.h"

namespace sluice::text {

const HashSecrets& ProcessSecrets() {
  static const HashSecrets kSecrets = {RandomSeed(), RandomSeed() | 1};  // no key times 0
  return kSecrets;
}

}  // namespace sluice::text
