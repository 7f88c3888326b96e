// The k largest of each row of scores in device memory: the answers of topk.hpp, bit for bit. Like
// the calls of cuda/rows.hpp this takes no memory, waits for nothing and can be captured in a CUDA
// graph; unlike them it has no parameters but these.
#pragma once

#include <cstdint>

#include "sluice/cuda/rows.hpp"

namespace sluice::cuda {

// As sluice::TopkInput, with lengths and hints in device memory.
struct TopkInput {
  LogitsView scores = {};
  int32_t k = 0;

  // One a request of next_n rows, or empty. A length outside of [0, scores.vocab] gives the rows of
  // its request the status kBadParam and indices of -1.
  DeviceArray<const int32_t> lengths = {};
  int32_t next_n = 1;

  // hint_columns a request, each shifted by hint_shift; any numbers at all. It is apart from what
  // the call writes: rows of one request, and the blocks of a row, read it at different times.
  DeviceArray<const int32_t> hint = {};
  int32_t hint_columns = 0;
  int32_t hint_shift = 0;

  bool sorted = false;

  // As sluice::TopkInput::thresholds, in device memory: read by calls with a plan of kThreshold,
  // written by all.
  DeviceArray<float> thresholds = {};
};

// Where the thresholds of a row come from. It changes the time, never the answer.
enum class TopkGuess : uint8_t {
  kSample,     // a sample of the row, at the rank that keeps somewhat more than k
  kHint,       // the mean of the scores at the hinted indices; then as kSample
  kSecant,     // as kHint; then, three times at most, along the secant of two counts
  kThreshold,  // what the call before left in TopkInput::thresholds; then as kSample
};

// How a row was decided.
enum class TopkWay : uint8_t {
  kCandidates,  // a threshold left some more than k scores, which were ranked
  kPlateau,     // more scores equal the k-th largest than there is room for: by place among them
  kDefinition,  // counted by digits of its order keys, exact for every row
};

// The work of deciding a row.
struct TopkWork {
  TopkWay way;
  uint8_t reads;       // of the whole row by the verify phase, without those of the definition
  uint8_t rounds;      // of counting in the refine phase
  int32_t candidates;  // that were ranked
};

// How a call runs.
struct TopkPlan {
  TopkGuess guess;
  int32_t blocks;   // a row, a power of two up to 8
  int32_t threads;  // a block, 512 or 1024
  // Scores that may be ranked: a power of two. 0: every row by the definition.
  int32_t capacity;

  friend bool operator==(const TopkPlan&, const TopkPlan&) = default;
};

// The plan that Topk chooses for the current device: by rows, width and k, from a table of
// measurements, and kThreshold where thresholds are given.
TopkPlan PlanTopk(const TopkInput& input);

struct TopkOutput {
  DeviceArray<int32_t> indices = {};     // rows * k
  DeviceArray<float> values = {};        // empty, or rows * k
  DeviceArray<RowStatus> statuses = {};  // empty, or one a row
  DeviceArray<TopkWork> work = {};       // empty, or one a row, for measurements
};

// plan: null, or what to do instead of what PlanTopk says; the answer is the same.
void Topk(const TopkInput& input, const TopkOutput& output, void* stream,
          const TopkPlan* plan = nullptr);

}  // namespace sluice::cuda
