// Where a running amount over keys, from the largest key down, reaches a target: exact, for any
// keys, in three passes of counting by digit. The amount is a number of elements or their mass.
//
// Top-k, top-p and typical find a value with it, ties an id, the cdf draw a place among ids.
#pragma once

#include "cuda/team.cuh"

namespace sluice::cuda {

inline constexpr int kDigitBins = 2048;

// In shared memory. A mass has two words, because only 32 bits can be added atomically at speed.
struct FindMemory {
  uint32_t count[kDigitBins];
  uint32_t mass_low[kDigitBins];
  uint32_t mass_high[kDigitBins];
  uint64_t above;
  uint32_t count_above;
  uint32_t count_in_bin;
  uint32_t bin;
};

struct Found {
  uint32_t key;          // with which the amount reaches the target
  uint64_t above;        // the amount of the larger keys
  uint32_t count_above;  // the number of elements with larger keys
  uint32_t count;        // the number of elements with this key
};

enum class Amount { kCount, kMass };

// After a Sync: the bin in which the amount reaches the target, by every block for itself. A
// thread has some neighbouring bins, the first thread the largest keys. found: what is known so
// far.
template <Amount kAmount>
__device__ void FindBin(const Team& team, FindMemory& memory, uint64_t target, const Found& found) {
  auto amount_of = [&](uint32_t bin, uint32_t count) -> uint64_t {
    if constexpr (kAmount == Amount::kCount) return count;
    uint64_t mass = 0;
#pragma unroll
    for (int r = 0; r < kMostBlocks; ++r) {
      if (r >= team.blocks()) continue;
      mass += *team.Of(r, &memory.mass_low[bin]) +
              (static_cast<uint64_t>(*team.Of(r, &memory.mass_high[bin])) << 32);
    }
    return mass;
  };
  const uint32_t share = static_cast<uint32_t>(kDigitBins / team.threads());
  const uint32_t first = kDigitBins - 1 - static_cast<uint32_t>(team.thread()) * share;
  uint64_t amount = 0;
  uint32_t count = 0;
#pragma unroll 1
  for (uint32_t i = 0; i < share; ++i) {
    const uint32_t of_bin = team.SumOverBlocks(memory.count + (first - i));
    count += of_bin;
    amount += amount_of(first - i, of_bin);
  }
  uint64_t above = found.above + team.SumBefore(amount);
  uint32_t count_above = found.count_above + static_cast<uint32_t>(team.SumBefore(uint64_t{count}));
  if (above < target && target - above <= amount) {
#pragma unroll 1
    for (uint32_t i = 0;; ++i) {
      const uint32_t of_bin = team.SumOverBlocks(memory.count + (first - i));
      const uint64_t step = amount_of(first - i, of_bin);
      if (target - above <= step) {
        memory.bin = first - i;
        memory.above = above;
        memory.count_above = count_above;
        memory.count_in_bin = of_bin;
        break;
      }
      above += step;
      count_above += of_bin;
    }
  }
  team.SyncBlock();
}

// visit(add) calls add(key, count, mass) for the elements of this thread; counts of an element that
// stands for several are added up, and so is its mass. target: from 1 to the amount of all
// elements.
template <Amount kAmount, typename Visit>
__device__ Found Find(const Team& team, FindMemory& memory, uint64_t target, Visit visit) {
  constexpr bool kByMass = kAmount == Amount::kMass;
  Found found{0, 0, 0, 0};
  uint32_t known = 0;  // the bits of the key that are known
#pragma unroll 1
  for (int shift : {21, 10, 0}) {
    for (int bin = team.thread(); bin < kDigitBins; bin += team.threads()) {
      memory.count[bin] = 0;
      if constexpr (kByMass) memory.mass_low[bin] = memory.mass_high[bin] = 0;
    }
    team.SyncBlock();
    const uint32_t bins = (~known >> shift) & (kDigitBins - 1);  // 1023 for the last digit
    visit([&](uint32_t key, uint32_t count, uint64_t mass) {
      if ((key & known) != found.key) return;
      const uint32_t bin = (key >> shift) & bins;
      atomicAdd(&memory.count[bin], count);
      if constexpr (kByMass) {
        const uint32_t low = static_cast<uint32_t>(mass);
        const uint32_t carry = atomicAdd(&memory.mass_low[bin], low) > ~low ? 1 : 0;
        const uint32_t high = static_cast<uint32_t>(mass >> 32) + carry;
        if (high != 0) atomicAdd(&memory.mass_high[bin], high);
      }
    });
    team.Sync();

    FindBin<kAmount>(team, memory, target, found);
    found = {found.key | memory.bin << shift, memory.above, memory.count_above,
             memory.count_in_bin};
    known |= bins << shift;
    team.Sync();  // before a thread clears what others read
  }
  return found;
}

}  // namespace sluice::cuda
