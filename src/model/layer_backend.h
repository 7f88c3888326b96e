// Which backend's parts a forward pass is made of.
#pragma once

#include <span>

#include "model/layer_table.h"
#include "sluice/execution.hpp"

namespace sluice::model {

const LayerTable& LayerTableFor(Backend backend);

// All that run here, for tests of them.
std::span<const LayerTable* const> LayerTables();

}  // namespace sluice::model
