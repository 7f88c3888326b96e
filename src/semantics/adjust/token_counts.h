// The history of a request: its distinct tokens with their counts, ascending by id. Sparse, because
// a dense [requests, vocabulary] matrix takes gigabytes.
#pragma once

#include <span>

#include "semantics/host_device.h"

namespace sluice::semantics {

struct TokenCount {
  int32_t id;
  uint32_t in_prompt;
  uint32_t in_output;
  uint32_t repeat;  // scratch of DRY: the longest repeat that this token would extend
};

// Index of the first entry with an id not below `id`.
SLUICE_HD inline size_t LowerBound(std::span<const TokenCount> counts, int32_t id) {
  size_t begin = 0;
  size_t end = counts.size();
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    if (counts[middle].id < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace sluice::semantics
