// The small files that come with a model's weights.
#pragma once

#include <optional>
#include <string>

namespace sluice::engine {

// Nothing when there is no such file. Throws Error when it cannot be read or has more than 64 MiB.
std::optional<std::string> ReadTextFile(const std::string& path);

// tokenizer.json of a folder, or, where there is none, tokenizer.model, which need not be there.
std::string TokenizerPath(const std::string& directory);

}  // namespace sluice::engine
