// A function that writes in place takes no view of logits that may only be read.
#include <span>

#include "sluice/select.hpp"

void MaskRow(std::span<const sluice::Cut> cuts, const sluice::Execution& execution) {
  float row[4] = {};
#ifdef SLUICE_MISUSE
  sluice::LogitsView logits{.data = row, .rows = 1, .vocab = 4, .stride = 4};
#else
  sluice::MutableLogitsView logits{.data = row, .rows = 1, .vocab = 4, .stride = 4};
#endif
  sluice::Mask(logits, cuts, execution);
}
