// One row by one algorithm of the study, for each SIMD target. Arguments have been checked; the
// workspace is that of the core's selection.
#pragma once

#include "select/select_table.h"
#include "sluice/research/algorithms.hpp"

namespace sluice::research {

using SelectRow = SelectedSet (*)(const RowRequest&, std::byte* workspace);

struct RowSelectors {
  SelectRow sort;
  SelectRow filter_sort;
  SelectRow filter_scan;
  SelectRow quick_find_max;
  SelectRow histogram;
  SelectRow radix;
};

extern const RowSelectors kSelectorsAvx2;
extern const RowSelectors kSelectorsAvx512;

}  // namespace sluice::research
