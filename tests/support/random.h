// Random numbers for tests: the same on every machine and standard library.
#pragma once

#include <cmath>
#include <cstdint>

#include "semantics/draw/philox.h"

namespace sluice::test {

class Random {
 public:
  explicit Random(uint64_t seed) : seed_(seed) {}

  uint64_t Bits() {
    const semantics::Block block = semantics::Philox(
        seed_, static_cast<uint32_t>(count_), static_cast<uint32_t>(count_ >> 32), 0x7e57u, 0);
    ++count_;
    return static_cast<uint64_t>(block.word[1]) << 32 | block.word[0];
  }
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Bits() % static_cast<uint64_t>(bound));
  }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  bool Coin(double probability = 0.5) { return Uniform() < probability; }
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1p-53; }  // [0, 1)
  double Normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - Uniform()));
    return radius * std::cos(6.283185307179586 * Uniform());
  }
  template <typename Container>
  auto& Pick(Container& container) {
    return container[static_cast<size_t>(Below(static_cast<int64_t>(container.size())))];
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

}  // namespace sluice::test
