// The built-in model, in the library sluice_default_model: stories without a file or a network.
#pragma once

#include "sluice/checkpoint.hpp"

namespace sluice {

// Valid for as long as the program runs.
CheckpointFiles DefaultModelFiles();

}  // namespace sluice
