// The state of a Model.
#pragma once

#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "sluice/model.hpp"
#include "support/mapped_file.h"

namespace sluice {

class Model::Impl {
 public:
  model::ModelConfig config;
  model::Weights weights;
  std::vector<MappedFile> files;
};

}  // namespace sluice
