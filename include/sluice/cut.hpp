// The Cut: how a set of kept tokens travels.
//
// Every rule of Sluice keeps an interval of one total order (value descending, id ascending), so a
// kept set of any size is two boundaries. The same set has the same Cut, bit for bit, whatever
// algorithm, backend, batch or shard count produced it.
#pragma once

#include <cstdint>
#include <limits>

#include "sluice/status.hpp"

namespace sluice {

// Kept are the tokens strictly between the boundaries; of those equal to `lower` the first
// `ties_kept` by id; of those equal to `upper` all but the first `ties_dropped`. When the
// boundaries are equal, both counts apply to the same group of ties.
struct Cut {
  // +inf unless a rule removed tokens from the top (typical, XTC): then the first kept value.
  float upper = std::numeric_limits<float>::infinity();
  // The last kept value. +inf when nothing is kept.
  float lower = std::numeric_limits<float>::infinity();
  int32_t ties_dropped = 0;
  int32_t ties_kept = 0;
  int32_t count = 0;  // number of kept tokens
  RowStatus status = RowStatus::kOk;

  friend bool operator==(const Cut&, const Cut&) = default;
};

// The masses of a Cut, in weight units (the heaviest token of a row weighs 2^40). They are exact,
// and computed only on request.
struct CutMass {
  uint64_t kept = 0;   // mass of the kept set, at the temperature that the filters see
  uint64_t total = 0;  // Z: the mass that top-p was measured against
  // How far the boundary of top-p is from moving by one token: the smaller of the distances from
  // the target to the mass before the last token that top-p keeps, and to the mass up to and with
  // it. UINT64_MAX when top-p is off.
  uint64_t margin = std::numeric_limits<uint64_t>::max();

  friend bool operator==(const CutMass&, const CutMass&) = default;
};

// The result of sampling a row.
struct TokenResult {
  int32_t id = -1;  // -1 with a status, and for draft rows after a rejection
  RowStatus status = RowStatus::kOk;
  float logprob = std::numeric_limits<float>::quiet_NaN();  // in the requested mode, else NaN
  int32_t rank = 0;  // number of tokens with value >= the sampled one's; 0 if not requested
  Cut cut = {};
};

}  // namespace sluice
