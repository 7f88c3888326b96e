// How many rows of the weights are worth reading one by one.
#pragma once

#include <cstdint>

#include "semantics/host_device.h"

namespace sluice {

// Of tokens that may matter, for each of so many hidden states of a call, which share a read of the
// whole head where they need one: together no more than half of it, which is not much less than
// all. A draw from everything of a trained head of 32768 rows leaves 3000 open in the mean and up
// to 11116: while a sixteenth was the budget, 84 to 97 % of such draws read the whole head
// (`sluice bench trained-head`). At least a sixteenth for each, and more of a small head, of which
// a larger share is open.
SLUICE_HD inline int64_t SurvivorBudget(int64_t vocab, int64_t states) {
  const int64_t share = vocab / (states < 8 ? 2 * states : 16);
  const int64_t of_small = vocab / 4 < 2048 ? vocab / 4 : 2048;
  const int64_t least = of_small > 256 ? of_small : 256;
  return share > least ? share : least;
}

// Of allowed tokens, without a look at the planes, which are a quarter of the weights' bytes and
// are read in order.
SLUICE_HD inline int64_t FewAllowed(int64_t vocab) { return vocab > 4096 ? vocab / 16 : 256; }

}  // namespace sluice
