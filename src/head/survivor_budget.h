// How many rows of the weights are worth reading one by one.
#pragma once

#include <cstdint>

#include "semantics/host_device.h"

namespace sluice {

// Of tokens that may matter. More than half of a head is not much less than all of it. A draw from
// everything of a trained head of 32768 rows leaves 3000 open in the mean and up to 11116: while a
// sixteenth was the budget, 84 to 97 % of such draws read the whole head
// (`sluice bench trained-head`).
SLUICE_HD inline int64_t SurvivorBudget(int64_t vocab) { return vocab > 512 ? vocab / 2 : 256; }

// Of allowed tokens, without a look at the planes, which are a quarter of the weights' bytes and
// are read in order.
SLUICE_HD inline int64_t FewAllowed(int64_t vocab) { return vocab > 4096 ? vocab / 16 : 256; }

}  // namespace sluice
