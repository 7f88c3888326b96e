// The rows that the benches time, for programs in other languages: raw fp32, row after row, and
// next to it FILE.json, which says what they are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/support/rows.h"

namespace sluice::bench {

// `rows` rows of each distribution, the same as every bench of that vocabulary makes. Throws
// std::runtime_error when a file cannot be written.
void WriteRowsFile(const std::string& path, int64_t vocab, int64_t rows,
                   const std::vector<Distribution>& distributions);

}  // namespace sluice::bench
