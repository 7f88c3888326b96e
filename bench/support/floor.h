// The floor that every time is divided by: one streaming pass over the row, the cheapest thing that
// looks at all of it. It computes the largest value, with 8 vector accumulators and no index. bf16
// is compared as it is: of 16-bit integers the largest is the answer if it is not negative, and
// else the one that is smallest without a sign. That is two operations a vector; widening takes
// four.
#pragma once

#include <cstdint>
#include <string_view>

#include "sluice/tensor.hpp"

namespace sluice::bench {

// The largest of `size` logits. No NaN may be among them.
float RowMax(const void* row, DType dtype, int64_t size);

// The instructions that it runs with here: the widest that this machine has.
std::string_view RowMaxInstructions();

}  // namespace sluice::bench
