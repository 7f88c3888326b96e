// The adjustments by the definition.
#include "adjust/adjust_table.h"
#include "semantics/widen.h"

namespace sluice {
namespace {

void WidenRef(const void* row, DType dtype, std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = semantics::Load(row, dtype, static_cast<int64_t>(i));
  }
}

}  // namespace

const AdjustTable kAdjustRef = {WidenRef, semantics::AdjustRow, semantics::ApplyForced};

}  // namespace sluice
