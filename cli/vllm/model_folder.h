// The folder of a model that vLLM takes by a name.
#pragma once

#include <string>

namespace sluice::cli {

// A folder as it is; ORG/NAME as the snapshot that Hugging Face's cache has of it. Throws what is
// missing, and how to get it.
std::string ModelFolder(const std::string& model, const std::string& revision = {});

// Whether its config.json has a number of experts: several ranks compute these together.
bool HasExperts(const std::string& folder);

}  // namespace sluice::cli
