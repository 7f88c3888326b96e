// All that a bug report needs about this build and this machine, as JSON.
#pragma once

#include <cstdint>
#include <ostream>

namespace sluice {

// `model_bytes`: of the weights that are built in; 0: there are none.
void WriteBuildReport(std::ostream& out, int64_t model_bytes = 0);

}  // namespace sluice
