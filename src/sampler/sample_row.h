// Select and Draw of one row, in fp32 or in the dtype of the logits. Arguments have been checked.
#pragma once

#include "draw/draw_table.h"
#include "select/select_table.h"

namespace sluice {

// workspace: that of the selection for this vocabulary. Returns what the selection gave, with
// masses where the request needs them.
SelectedSet SampleRow(const RowRequest& request, DrawMethod method, const SelectTable& selection,
                      const DrawTable& draws, std::byte* workspace, TokenResult& result);

// Sample with a table in place of the backend's. The view and the number of workers have been
// checked; everything else is checked here.
void SampleWith(const SelectTable& selection, const SelectInput& input, DrawMethod method,
                std::span<TokenResult> results, const Execution& execution);

}  // namespace sluice
