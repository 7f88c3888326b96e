// What a DeviceSampler keeps of its requests in device memory, for host and device.
//
// A request has its tokens, and a list of the ids that it watches, ascending: those that it has
// seen, with counts, and those that its parameters name, with marks. A row's patch is that list
// with values. Nothing is as long as the vocabulary but bitmasks.
#pragma once

#include <cstdint>

#include "semantics/adjust/penalties.h"
#include "sluice/cut.hpp"
#include "sluice/params.hpp"
#include "sluice/tensor.hpp"

namespace sluice::cuda {

enum Mark : uint32_t {
  kAllowedMark = 1,  // among the allowed ids
  kStopMark = 2,     // masked by min-tokens
  kBiasMark = 4,     // has entries in the bias
  kBadWordMark = 8,  // ends a bad word
};

struct WatchedToken {
  int32_t id;
  uint32_t in_prompt;
  uint32_t in_output;
  uint32_t marks;
};

// A token of a row's patch, before its logit is known: which stages change it, and what of them
// needs no logit.
struct PatchItem {
  int32_t id;
  uint32_t marks;
  uint32_t counted;   // how often penalties count it
  float dry_penalty;  // of what has kRepeatMark
};
inline constexpr uint32_t kMaskedMark = 16;  // by bad words or min-tokens
inline constexpr uint32_t kSeenMark = 32;    // penalties change it
inline constexpr uint32_t kForcedMark = 64;
inline constexpr uint32_t kRepeatMark = 128;  // DRY changes it
inline constexpr int32_t kMostTokens = (1 << 24) - 1;

// What the host writes.
struct RequestRecord {
  SelectParams select;
  semantics::Penalties penalties;
  PenaltyScope penalty_scope;
  bool has_allowed_ids;
  bool counts_tokens;  // penalties or DRY: what it sees is watched
  bool has_patch;      // whether anything but a bitmask or a forced token changes its rows
  DrawMethod draw_method;
  DraftMode draft_mode;
  LogprobMode logprob_mode;
  bool has_logprobs;
  int32_t listed_logprobs;
  float dry_multiplier;
  float dry_base;
  int32_t dry_allowed_length;
  int32_t dry_range;
  uint32_t dry_longest;  // repeats beyond get the same penalty
  int32_t min_tokens;
  uint64_t seed;
  uint32_t choice;
  int32_t prompt_length;
  // Its lists, one after the other: bias entries by id, bad words, their offsets, breakers.
  int32_t bias_entries;
  int32_t bad_word_ids;
  int32_t bad_words;
  int32_t breakers;
};

// What the device writes.
struct RequestProgress {
  int32_t tokens;
  int32_t watched;
};

// All requests. Arrays of arrays, one a slot.
struct RequestStore {
  RequestRecord* records;
  RequestProgress* progress;
  int32_t* tokens;
  WatchedToken* watched;
  int32_t* lists;
  int32_t max_tokens;  // of a slot, and so on
  int32_t max_watched;
  int32_t max_listed;

  SLUICE_HD int32_t* TokensOf(int32_t slot) const { return tokens + int64_t{slot} * max_tokens; }
  SLUICE_HD WatchedToken* WatchedOf(int32_t slot) const {
    return watched + int64_t{slot} * max_watched;
  }
  SLUICE_HD int32_t* ListsOf(int32_t slot) const { return lists + int64_t{slot} * max_listed; }
};

// A row of a step. Rows of a request follow each other; row d of a chain comes after d drafts.
struct StepRow {
  int32_t slot;
  int32_t first_draft;  // of its request, among the drafts of the step
  int32_t depth;        // how many drafts precede it
  int32_t draft;        // the first token that a row after this one assumes; -1: there is none
  int32_t forced;       // -1: none
  int32_t bitmask;      // -1: none, else its place among those of the step
  int32_t processed;    // -1: no processor changes it, else its place among those that some do
};

// Belongs to each row of a step in which a request has a tree of drafts; a chain is one, too.
// Row i + 1 of a request is the node of its draft i.
struct TreeRow {
  uint64_t before;  // bit i: the row comes after draft i, its own one for the last
  int32_t row;      // of its request
  int32_t rows;

  SLUICE_HD bool IsChildOf(const TreeRow& node) const {
    return row > 0 && before == (node.before | uint64_t{1} << (row - 1));
  }
};

// What a Sluice draft model says of a draft. It belongs to the row with the draft's number within
// the request, as given probabilities do.
struct DraftModelRow {
  const void* logits;  // null: no draft model
  SelectParams params;
  Cut cut;
  DType dtype;
  RowStatus status;  // of cut and parameters
};

struct StepSpan {
  int32_t slot;
  int32_t first_row;
  int32_t rows;
};

// Index of the first entry with an id not below `id`.
SLUICE_HD inline int32_t LowerBound(const WatchedToken* watched, int32_t size, int32_t id) {
  int32_t begin = 0;
  int32_t end = size;
  while (begin < end) {
    const int32_t middle = begin + (end - begin) / 2;
    if (watched[middle].id < id) {
      begin = middle + 1;
    } else {
      end = middle;
    }
  }
  return begin;
}

}  // namespace sluice::cuda
