// The DeviceSampler from the host's side.
//
//   device_sampler.cc   admission, and what changes a request between steps
//   device_step.cc      what a step may be given, its tables, its graph, its answer
//   device_reports.cc   rows that processors change; reports of rows in addition to their tokens
//   device_*.cu         the kernels
//
// Three streams: the caller's, on which the graph of a step runs; `changes_`, on which all that
// changes requests and tables follows each other, the tokens of a step after it; and `copies_`.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "sampler/device/device_buffers.h"
#include "sampler/device/device_resources.h"
#include "sampler/recently_used.h"
#include "sluice/cuda/sampler.hpp"

namespace sluice::cuda {

// Of a step with processors, which run between two graphs.
enum class StepPart : uint8_t { kWhole, kBeforeProcessors, kAfterProcessors };

// Which kernels a step needs, and of what shape.
struct StepShape {
  StepPart part = StepPart::kWhole;
  OutputShape output;
  LogitsView logits;
  LogitsSource source;
  int32_t processed_rows = 0;
  bool has_patches = false;  // masks or values
  bool has_values = false;
  bool is_greedy = false;    // all of it, and nothing is adjusted
  bool has_verdict = false;  // drafts, results or two ways to draw
  bool has_results = false;  // Cuts are needed, of a report or a rejection
  bool rejects = false;
  bool has_models = false;  // draft models to reject against
  bool draws_gumbel = false;
  bool draws_cdf = false;
  bool has_typical = false;  // before a top-k
  bool has_wide = false;     // a request with rows that their first k tokens do not decide
  bool has_kept = false;
  uint8_t modes = 0;  // of log-probabilities, a bit a mode

  bool draws_both() const { return draws_gumbel && draws_cdf; }

  friend bool operator==(const StepShape& a, const StepShape& b) {
    auto members = [](const StepShape& s) {
      return std::tuple(s.part, s.output, s.logits.data, s.logits.rows, s.logits.stride,
                        s.logits.dtype, s.source.enqueue, s.source.context, s.processed_rows,
                        s.has_patches, s.has_values, s.is_greedy, s.has_verdict, s.has_results,
                        s.rejects, s.has_models, s.draws_gumbel, s.draws_cdf, s.has_typical,
                        s.has_wide, s.has_kept, s.modes);
    };
    return members(a) == members(b);
  }
};

inline int32_t RowsOf(const StepRequest& request) {
  return 1 + static_cast<int32_t>(request.drafts.size());
}
// What a step may give of a request.
int32_t MostTokens(const StepRequest& request);
// Whether a processor changes the request's rows.
bool ChangesRows(const RequestRecord& record, std::span<const DeviceLogitsProcessor> processors);

// What a step needs before its logits exist.
void PrepareStep(const DeviceBuffers& buffers, const StepShape& shape, void* stream);
// Enqueues the kernels of a step from its logits to its ids and what else it reports.
void EnqueueStep(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                 void* stream);

inline DrawMethod MethodOf(const StepShape& shape) {  // of all rows, or the first of both
  return shape.draws_gumbel ? DrawMethod::kGumbel : DrawMethod::kCdf;
}

inline StepTables TablesOf(std::byte* base, const StepShape& shape) {
  return TablesOf(base, TableShape{.rows = shape.output.rows,
                                   .requests = shape.output.requests,
                                   .has_trees = shape.output.has_path,
                                   .has_models = shape.has_models,
                                   .processed_rows = shape.processed_rows});
}
inline StepTables TablesOf(const DeviceBuffers& buffers, const StepShape& shape) {
  return TablesOf(buffers.tables, shape);
}

// Those of its rows, with their keys and patches.
RowParams ParamsOf(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits);

// The reports of the rows with requests for log-probabilities in a mode.
LogprobsArgument ReportOf(const DeviceBuffers& buffers, const StepShape& shape, LogprobMode mode,
                          const Limits& limits);

// The rows that processors change, written out for them; and their draws after them, to where
// those of the other rows are.
void EnqueueWriteOut(const DeviceBuffers& buffers, const StepShape& shape, void* stream);
void EnqueueProcessedDraws(const DeviceBuffers& buffers, const StepShape& shape,
                           const Limits& limits, void* stream);

// After the ids: log-probabilities, masses and kept sets. is_behind_draw: directly after the draw.
void EnqueueReports(const DeviceBuffers& buffers, const StepShape& shape, const Limits& limits,
                    bool is_behind_draw, void* stream);

class DeviceSampler::Impl {
 public:
  Impl(const DeviceSamplerOptions& options, DeviceArray<std::byte> memory);
  ~Impl();

  RequestHandle Add(const Request& request, std::span<const DeviceLogitsProcessor> processors);
  void Remove(RequestHandle request);
  void Update(RequestHandle request, const SamplingParams& params);
  void Accept(RequestHandle request, std::span<const int32_t> tokens);
  void Rollback(RequestHandle request, int64_t count);
  StepHandle Step(DeviceSampler* sampler, const StepInput& input, void* stream,
                  const LogitsSource& source);
  DeviceStepResult Get(uint64_t step);

  int32_t FreeSlots() const { return static_cast<int32_t>(free_slots_.size()); }
  uint64_t Seed(RequestHandle request) const { return SlotOf(request).record.seed; }
  int64_t Waits() const { return ring_.waits() + waits_; }

 private:
  struct Slot {
    uint32_t generation = 0;
    bool is_live = false;
    uint64_t last_check = 0;  // a request may take part in a step once
    RequestRecord record = {};
    SamplingParams params = {};
    std::vector<DeviceLogitsProcessor> processors;
    int64_t tokens = 0;  // that the host has read
    int64_t unread = 0;  // that steps may give which Get has not answered
  };
  // A request of a step, for when its answer comes.
  struct Member {
    int32_t slot;
    uint32_t generation;
    int32_t rows;
    int32_t most_tokens;
  };
  struct StepRecord {
    uint64_t step = 0;
    StepShape shape;
    std::vector<Member> members;
    bool is_read = true;
    Event done;
    Event copied;
  };
  // Something for the device.
  struct Piece {
    void* to;
    const void* from;
    size_t bytes;
  };

  const Slot& SlotOf(RequestHandle request) const;
  Slot& SlotOf(RequestHandle request) {
    return const_cast<Slot&>(static_cast<const Impl*>(this)->SlotOf(request));
  }
  void CheckNotCalledBack() const;
  void CheckRoom(const Slot& slot, int64_t more, std::string_view parameter) const;
  RequestRecord RecordOf(const SamplingParams& params) const;
  void Send(std::span<const Piece> pieces);
  void CheckProcessors(const Request& request,
                       std::span<const DeviceLogitsProcessor> processors) const;
  StepShape CheckStep(const StepInput& input);
  void CheckRequest(const StepRequest& request, const Slot& slot, int device) const;
  void SendTables(const StepInput& input, const StepShape& shape);
  void RunProcessors(const StepInput& input, const StepShape& shape, void* stream);
  cudaGraphExec_t GraphOf(const StepShape& shape);
  void Launch(const StepShape& shape, cudaGraphExec_t graph, cudaStream_t stream);
  void CountTokens(StepRecord& record);

  DeviceSamplerOptions options_;
  std::optional<CudaBlock> own_memory_;
  DeviceBuffers buffers_;
  PinnedRing ring_;
  CudaBlock answers_;
  size_t answer_bytes_;
  Stream changes_;
  Stream copies_;
  Stream captures_;
  Event changed_;
  std::vector<Slot> slots_;
  std::vector<int32_t> free_slots_;
  std::array<StepRecord, kStepsKept> steps_kept_;
  struct Seen {};
  RecentlyUsed<StepShape, Seen> seen_;  // once, without a graph
  RecentlyUsed<StepShape, Graph> graphs_;
  std::vector<std::byte> tables_;  // as they are on the device, or will be
  std::vector<std::byte> new_tables_;
  std::vector<Piece> bitmasks_;
  uint64_t steps_ = 0;
  uint64_t checks_ = 0;
  bool is_calling_back_ = false;  // a step's source or processors run
  bool has_failed_ = false;       // the last step, when some of it was enqueued
  int64_t waits_ = 0;
};

}  // namespace sluice::cuda
