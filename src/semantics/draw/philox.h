// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011):
// a pure function from a 64-bit key and a 128-bit counter to 128 random bits.
#pragma once

#include "semantics/host_device.h"

namespace sluice::semantics {

struct Block {
  uint32_t word[4];

  // By choosing, because an array with a place that is not known has to lie in memory.
  SLUICE_HD uint32_t Word(uint32_t place) const {
    const bool is_odd = (place & 1) != 0;
    return (place & 2) != 0 ? (is_odd ? word[3] : word[2]) : (is_odd ? word[1] : word[0]);
  }
};

// Both words of a product of two words.
struct Product {
  uint32_t high;
  uint32_t low;
};

SLUICE_HD inline Product Multiply(uint32_t a, uint32_t b) {
#ifdef __CUDA_ARCH__
  // One instruction, where the compiler makes two of a product of 64 bits.
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
#else
  const uint64_t product = uint64_t{a} * b;
#endif
  return {static_cast<uint32_t>(product >> 32), static_cast<uint32_t>(product)};
}

// The key is the seed, low word first.
SLUICE_HD inline Block Philox(uint64_t seed, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(seed);
  uint32_t k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const Product p0 = Multiply(0xD2511F53u, c0);
    const Product p1 = Multiply(0xCD9E8D57u, c2);
    c0 = p1.high ^ c1 ^ k0;
    c1 = p1.low;
    c2 = p0.high ^ c3 ^ k1;
    c3 = p0.low;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

}  // namespace sluice::semantics
