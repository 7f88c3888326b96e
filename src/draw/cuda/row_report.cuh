// What the reports of log-probabilities need of a row, and where they go.
#pragma once

#include "cuda/team.cuh"
#include "draw/step_logprobs.h"
#include "semantics/draw/logprob.h"

namespace sluice::cuda {

class RowReport {
 public:
  __device__ RowReport(const LogprobsArgument& argument, int row)
      : argument_(argument),
        row_(argument.step.places == nullptr ? row : argument.step.places[row]),
        listed_(argument.lists.width) {
    if (argument.step.requested == nullptr) return;
    const RequestedLogprobs requested = argument.step.requested[row_];
    is_requested_ = requested.is_requested && requested.mode == argument.mode;
    is_of_others_ = requested.is_requested && requested.mode != argument.mode;
    listed_ = min(1 + requested.listed, argument.lists.width);
  }

  __device__ bool is_requested() const { return is_requested_; }
  // The tokens of the list, with the drawn one.
  __device__ int listed() const { return listed_; }

  // The token that was drawn, and its Cut; after the draw.
  __device__ TokenResult Drawn() const {
    TokenResult result;
    if (argument_.results != nullptr) result = argument_.results[row_];
    if (argument_.step.requested != nullptr) result.id = argument_.step.ids[row_];
    const bool is_known = argument_.step.requested != nullptr || result.status == RowStatus::kOk;
    if (!is_known || result.id < 0 || result.id >= argument_.rows.vocab) result.id = -1;
    return result;
  }

  // By one thread.
  __device__ void Put(float logprob, int32_t rank) const {
    if (argument_.step.requested != nullptr) {
      argument_.step.logprobs[row_] = logprob;
      argument_.step.ranks[row_] = rank;
    } else {
      argument_.results[row_].logprob = logprob;
      argument_.results[row_].rank = rank;
    }
  }
  // All entries of the list before those that are found; by the first block. id: -1, no token.
  __device__ void BeginList(const Team& team, int32_t id, float logprob) const {
    for (int n = team.thread(); n < argument_.lists.width; n += team.threads()) {
      const bool is_listed = id >= 0 && n < listed_;
      Ids()[n] = is_listed && n == 0 ? id : -1;
      Values()[n] = !is_listed ? semantics::QuietNan() : n == 0 ? logprob : -INFINITY;
    }
  }
  __device__ void PutListed(int n, int32_t id, float value) const {
    Ids()[n] = id;
    Values()[n] = value;
  }
  // When there is no token; by the first block.
  __device__ void PutNothing(const Team& team) const {
    if (is_of_others_) return;
    if (team.thread() == 0) Put(semantics::QuietNan(), 0);
    BeginList(team, -1, 0.0f);
  }

 private:
  __device__ int32_t* Ids() const { return argument_.lists.ids + Offset(); }
  __device__ float* Values() const { return argument_.lists.values + Offset(); }
  __device__ int64_t Offset() const { return int64_t{row_} * argument_.lists.width; }

  const LogprobsArgument& argument_;
  int row_;  // its place where reports go
  int listed_;
  bool is_requested_ = true;
  bool is_of_others_ = false;
};

}  // namespace sluice::cuda
