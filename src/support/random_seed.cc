#include "support/random_seed.h"

#include <random>

#if __has_include(<sys/random.h>)  // glibc and macOS declare getentropy there, musl in unistd.h
#include <sys/random.h>
#include <unistd.h>
#define SLUICE_HAS_GETENTROPY 1
#else
#define SLUICE_HAS_GETENTROPY 0
#endif

namespace sluice {

uint64_t RandomSeed() {
#if SLUICE_HAS_GETENTROPY
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof seed) == 0) return seed;
#endif
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace sluice
