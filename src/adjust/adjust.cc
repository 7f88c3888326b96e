// The adjustments' dispatch: the reference serves every backend.
#include "adjust/adjust_table.h"
#include "backend/registry.h"

namespace sluice {

const AdjustTable& AdjustTableFor(Backend backend) {
  ResolveBackend(backend);  // throws when it is not there
  return kAdjustRef;
}

}  // namespace sluice
