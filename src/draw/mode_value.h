// The log-probability that a mode reports of a value.
#pragma once

#include "semantics/draw/logprob.h"
#include "sluice/logprobs.hpp"

namespace sluice {

SLUICE_HD inline bool IsProcessed(LogprobMode mode) {
  return mode == LogprobMode::kProcessedLogprobs || mode == LogprobMode::kProcessedLogits;
}
SLUICE_HD inline bool NeedsMass(LogprobMode mode) {
  return mode == LogprobMode::kRawLogprobs || mode == LogprobMode::kProcessedLogprobs;
}

struct ModeValue {
  LogprobMode mode;
  const SelectParams& params;
  semantics::Normalizer normalizer = {};  // read by the modes that need the mass

  // There is one NaN, whatever the bits of the one that it comes from.
  SLUICE_HD float operator()(float x) const {
    const float value = Of(x);
    return semantics::IsNan(value) ? semantics::QuietNan() : value;
  }

 private:
  SLUICE_HD float Of(float x) const {
    switch (mode) {
      case LogprobMode::kRawLogits:
        return x;
      case LogprobMode::kProcessedLogits:
        return semantics::ProcessedLogit(x, params);
      case LogprobMode::kRawLogprobs:
      case LogprobMode::kProcessedLogprobs:
        break;
    }
    return normalizer.Logprob(x);
  }
};

// One row's entries of the lists.
struct RowList {
  int32_t* ids;
  float* values;
  int32_t width;
};

inline RowList ListOf(const LogprobLists& lists, int64_t r) {
  return {lists.ids.data() + r * lists.width, lists.values.data() + r * lists.width, lists.width};
}

// A row without a token has neither log-probability nor list.
inline void ReportNothing(TokenResult& result, const RowList& list) {
  result.logprob = semantics::QuietNan();
  result.rank = 0;
  for (int32_t n = 0; n < list.width; ++n) {
    list.ids[n] = -1;
    list.values[n] = semantics::QuietNan();
  }
}

}  // namespace sluice
