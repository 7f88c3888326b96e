// Which backend's parts a forward pass is made of.
#pragma once

#include "model/layer_table.h"
#include "support/registry.h"

namespace sluice::model {

inline const LayerTable& LayerTableFor(Backend backend) {
  switch (ResolveBackend(backend)) {
#if SLUICE_HAS_CPU
    case Backend::kCpuAvx512:
      return kLayerAvx512;
    case Backend::kCpuAvx2:
      return kLayerAvx2;
#endif
    default:
      return kLayerRef;
  }
}

}  // namespace sluice::model
