// The model inside the library sluice_default_model: stories, without a file and without a network.
#pragma once

#include "sluice/checkpoint.hpp"

namespace sluice {

// Valid for as long as the program runs.
CheckpointFiles DefaultModelFiles();

}  // namespace sluice
