// The Python that has vLLM, and which version that is.
#pragma once

#include <string>

namespace sluice::cli {

struct FoundVllm {
  std::string python;
  std::string version;
};

// Of this interpreter; where it is empty, of the program `vllm` on PATH, and without one python3's.
// Imports nothing of vLLM, which takes long. Throws what is missing, and how to get it.
FoundVllm FindVllm(const std::string& python);

}  // namespace sluice::cli
