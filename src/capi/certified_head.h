// What the handle of a certified head names, and the structs of its calls to C++ and back.
#pragma once

#include <bit>

#include "capi/convert.h"

struct sluice_certified_head {
  sluice::CertifiedHead head;
};

namespace sluice::capi {

inline CertifiedInput ToCpp(const sluice_certified_input& c) {
  return {ToCpp(c.hidden), Elements("bitmask", c.bitmask, c.word_count)};
}

inline std::span<RowStatus> ToStatuses(const char* name, sluice_row_status* statuses,
                                       size_t count) {
  static_assert(sizeof(RowStatus) == sizeof(sluice_row_status));
  Elements(name, statuses, count);
  return {reinterpret_cast<RowStatus*>(statuses), count};
}

inline void Report(const CertifiedStats& stats, sluice_certified_stats* to) {
  if (to != nullptr) *to = std::bit_cast<sluice_certified_stats>(stats);
}

}  // namespace sluice::capi
