// The adjustments' dispatch.
#include "adjust/adjust_table.h"
#include "support/registry.h"

namespace sluice {

const AdjustTable& AdjustTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return kAdjustAvx512;
    case Backend::kCpuAvx2:
      return kAdjustAvx2;
#endif
    default:
      return kAdjustRef;
  }
}

}  // namespace sluice
