// The Sampler on host memory. Requests run independently of each other; the rows of one request run
// in order, because each row sees the drafts that the rows before it accepted.
//
//   sampler.cc       admission, and the public face
//   step_checks.cc   what a step may be given
//   step.cc          the step; certified/certified_step.cc: a step from a certified head
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "adjust/adjust_table.h"
#include "draw/draw_table.h"
#include "sampler/request_state.h"
#include "select/select_table.h"
#include "semantics/draw/draft.h"
#include "sluice/sampler.hpp"

namespace sluice {

struct SampleOutput;

inline int64_t BitmaskWords(int64_t vocab) { return (vocab + 31) / 32; }

class Sampler::Impl {
 public:
  explicit Impl(const SamplerOptions& options);

  RequestHandle Add(const Request& request);
  void Remove(RequestHandle request);
  RequestState& StateOf(RequestHandle request);
  void Step(const StepInput& input, const StepOutput& output);
  CertifiedStats StepFromHead(const CertifiedHead& head, const CertifiedInput& input,
                              std::span<const RequestHandle> requests, const SampleOutput& output,
                              std::span<CertifiedRow> results, const Execution& execution);
  int64_t vocab() const { return options_.vocab; }
  int32_t FreeSlots() const { return static_cast<int32_t>(free_slots_.size()); }

 private:
  struct Slot {
    uint32_t generation = 0;
    uint64_t last_step = 0;  // a request may take part in a step once
    std::optional<RequestState> state;
  };

  // A draft that may follow a row: its node, and what it was drawn from.
  struct Try {
    int32_t node = 0;
    SelectInput model;
  };

  // What one worker needs for a row: its adjusted values, the workspace of the stages, and room for
  // the drafts after it.
  struct Worker {
    std::span<float> values;
    std::span<std::byte> workspace;
    std::exception_ptr error;  // of the first request, in their order, that threw
    int64_t error_index = 0;
    std::vector<Try> tries = std::vector<Try>(semantics::kMostTries);
    std::vector<DraftToTry> to_verify = std::vector<DraftToTry>(semantics::kMostTries);
  };

  void BeginStep() { ++steps_; }
  // Of each request of the step that has begun, which takes it once.
  const RequestState& TakeIntoStep(RequestHandle request);
  void CheckStep(const StepInput& input, const StepOutput& output);
  void CheckStepFromHead(std::span<const RequestHandle> requests, int64_t rows, int64_t vocab);
  void StepRequestRows(const StepInput& input, const StepOutput& output, size_t index,
                       int64_t first_row, Worker& worker);
  LogitsView AdjustedRow(const LogitsView& raw, RequestState& state, const StepRequest& request,
                         int64_t node, bool must_copy, std::span<float> values) const;
  int32_t DrawRow(const SelectInput& row, const StepRequest& request, const RequestState& state,
                  int32_t node, CutMass* mass, Worker& worker, TokenResult& result) const;
  void Report(const LogitsView& raw, const SelectInput& row, const RequestState& state,
              const StepOutput& output, int64_t r, int64_t raw_row, const Execution& serial) const;

  SamplerOptions options_;  // with the backend that was chosen
  const AdjustTable& adjustments_;
  const SelectTable& selection_;
  const DrawTable& draws_;
  size_t row_workspace_;
  std::vector<Slot> slots_;
  std::vector<int32_t> free_slots_;
  std::vector<int64_t> first_rows_;  // of the requests of the step at hand
  std::vector<std::byte> memory_;
  std::vector<Worker> workers_;
  uint64_t steps_ = 0;
};

}  // namespace sluice
