#include "head/certified/certified_rows.h"

#include <algorithm>
#include <cmath>

#include "head/certified/cuda/survivor_budget.h"
#include "semantics/adjust/token_mask.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kTilesInTask = 32;

bool HasNan(const semantics::Row& hidden) {
  for (int64_t j = 0; j < hidden.size; ++j) {
    if (semantics::IsNan(hidden[j])) return true;
  }
  return false;
}

// What RowCertificate::ComputeAllowed takes fewer bytes for than scores.
bool AreFewAllowed(const int32_t* bitmask, int64_t vocab) {
  return bitmask != nullptr && RowCertificate::AllowedCount(bitmask, vocab) <= FewAllowed(vocab);
}

}  // namespace

void CheckHidden(const CertifiedHead& head, const MatrixView& hidden) {
  const int64_t dim = head.head().weight.columns;
  CheckMatrix("hidden", "dim", hidden, kMaxDim);
  CheckInRange("hidden.dim", hidden.columns, dim, dim);
}

CertifiedRows::Layout::Layout(const PlaneView& planes, int64_t rows, size_t memory_bytes)
    : width(planes.tiles() * kTileRows), mask_words((planes.vocab + 31) / 32) {
  const auto count = static_cast<size_t>(rows);
  const auto vocab = static_cast<size_t>(planes.vocab);
  groups = RoundUp(count * sizeof(State));
  intervals = groups + RoundUp(count * static_cast<size_t>(planes.groups) * sizeof(HiddenGroup));
  scored = intervals + RoundUp(2 * count * static_cast<size_t>(width) * sizeof(float));
  scored_intervals = scored + RoundUp(count * sizeof(HiddenState));
  dense_rows = scored_intervals + RoundUp(count * sizeof(Intervals));
  masks = dense_rows + RoundUp((count + 1) * sizeof(int32_t));
  call_bytes = masks + RoundUp(count * static_cast<size_t>(mask_words) * sizeof(int32_t));

  ids = RoundUp(vocab * sizeof(semantics::Token));
  refined = ids + RoundUp(vocab * sizeof(int32_t));
  scores_before = refined + RoundUp(vocab);
  memory = scores_before + (planes.low_codes == nullptr ? 0 : RoundUp(vocab * sizeof(float)));
  worker_bytes = memory + RoundUp(memory_bytes);
}

size_t CertifiedRows::Bytes(const CertifiedHead& head, int64_t rows, const Execution& execution,
                            size_t memory_bytes) {
  CheckInRange("rows", rows, 0, INT32_MAX);
  CheckWorkers(execution);
  const Layout layout(PlaneAccess::View(head.planes()), rows, memory_bytes);
  return layout.call_bytes + WorkspaceBytes(execution, layout.worker_bytes);
}

CertifiedRows::CertifiedRows(const CertifiedHead& head, const CertifiedInput& input,
                             std::span<CertifiedRow> results, const Execution& execution,
                             size_t memory_bytes)
    : planes_(PlaneAccess::View(head.planes())),
      head_{head.head(), planes_, DenseHeadTableFor(execution.backend),
            ScoreTableFor(execution.backend)},
      input_(input),
      results_(results),
      execution_(execution),
      layout_(planes_, input.hidden.rows, memory_bytes),
      rows_(input.hidden.rows),
      states_(At<State>(0)) {
  if (!input.bitmask.empty()) {
    CheckSize("bitmask", input.bitmask.size(), rows_ * layout_.mask_words);
  }
  if (!results.empty()) CheckSize("rows", results.size(), rows_);
  CheckExecution(execution, Bytes(head, rows_, execution, memory_bytes));
  for (int64_t r = 0; r < rows_; ++r) {
    states_[r] = {};
    states_[r].result.margin = semantics::Infinity();
  }
}

Intervals CertifiedRows::IntervalsOf(int64_t row) const {
  float* const scores = At<float>(layout_.intervals) + 2 * row * layout_.width;
  return {scores, scores + layout_.width};
}

semantics::Token* CertifiedRows::Tokens(int worker) const {
  return reinterpret_cast<semantics::Token*>(Worker(worker));
}

RowMemory CertifiedRows::MemoryOf(int64_t row, int worker) const {
  std::byte* const own = Worker(worker);
  return {IntervalsOf(row), Tokens(worker), reinterpret_cast<int32_t*>(own + layout_.ids),
          reinterpret_cast<uint8_t*>(own + layout_.refined),
          planes_.low_codes == nullptr ? nullptr
                                       : reinterpret_cast<float*>(own + layout_.scores_before)};
}

void CertifiedRows::LeaveToDense(State& state, DenseReason reason) const {
  state.need = Need::kDense;
  state.reason = reason;
}

// The masks of the input and of the row as one, and what changes single logits.
void CertifiedRows::Adjust(int64_t row, semantics::AdjustInput adjust) {
  State& state = states_[row];
  state.adjust = semantics::TokenAdjust(adjust);
  if (!semantics::MasksTokens(adjust)) return;
  adjust.bitmask = state.bitmask;
  int32_t* const words = At<int32_t>(layout_.masks) + row * layout_.mask_words;
  semantics::MaskTokens(adjust, {words, static_cast<size_t>(layout_.mask_words)});
  state.bitmask = words;
}

RowStatus CertifiedRows::Plan(int64_t row, Need need, const semantics::AdjustInput* adjust) {
  State& state = states_[row];
  state.need = need;
  if (need == Need::kNothing) return RowStatus::kOk;
  if (!input_.bitmask.empty()) state.bitmask = input_.bitmask.data() + row * layout_.mask_words;
  if (adjust != nullptr) Adjust(row, *adjust);
  state.is_few = AreFewAllowed(state.bitmask, planes_.vocab);
  if (state.is_few) return RowStatus::kOk;
  if (need == Need::kDense) {
    LeaveToDense(state, DenseReason::kParameters);
    return RowStatus::kOk;
  }
  HiddenGroup* const groups = At<HiddenGroup>(layout_.groups) + row * planes_.groups;
  if (EncodeHidden(Hidden(row), planes_, groups, state.hidden)) return RowStatus::kOk;
  if (HasNan(Hidden(row))) {  // then so is every logit
    state.need = Need::kNothing;
    return RowStatus::kNanInput;
  }
  LeaveToDense(state, DenseReason::kHidden);
  return RowStatus::kOk;
}

void CertifiedRows::Score() {
  auto* const states = At<HiddenState>(layout_.scored);
  auto* const intervals = At<Intervals>(layout_.scored_intervals);
  for (int64_t r = 0; r < rows_; ++r) {
    if (states_[r].need != Need::kPlanes || states_[r].is_few) continue;
    states[scored_] = states_[r].hidden;
    intervals[scored_++] = IntervalsOf(r);
  }
  if (scored_ == 0) return;
  const int64_t tasks = (planes_.tiles() + kTilesInTask - 1) / kTilesInTask;
  ForEachRow(execution_.parallel, tasks, [&](int64_t task, int) {
    const int64_t begin = task * kTilesInTask;
    head_.score.score(planes_, head_.dense.bias, {states, scored_}, {intervals, scored_}, begin,
                      std::min(begin + kTilesInTask, planes_.tiles()));
  });
}

std::optional<RowCertificate> CertifiedRows::Certificate(int64_t row, int worker) {
  State& state = states_[row];
  std::optional<RowCertificate> certificate;
  if (state.need == Need::kNothing) return certificate;
  if (!state.is_few && state.need == Need::kDense) return certificate;
  certificate.emplace(head_, RowSource{Hidden(row), state.hidden, state.bitmask, state.adjust},
                      MemoryOf(row, worker), SurvivorBudget(planes_.vocab, rows_));
  if (state.is_few) {
    state.result.path = CertifiedPath::kAllowed;
    certificate->ComputeAllowed();
    return certificate;
  }
  state.result.path = CertifiedPath::kPlanes;
  if (certificate->Start()) return certificate;
  LeaveToDense(state, DenseReason::kSurvivors);
  return std::nullopt;
}

void CertifiedRows::Close(int64_t row, const RowCertificate& certificate, DenseReason open) {
  State& state = states_[row];
  state.result.survivors = static_cast<int32_t>(certificate.survivors());
  state.result.margin = certificate.margin();
  state.refined = certificate.refined();
  if (open != DenseReason::kNone) LeaveToDense(state, open);
}

// In the memory of the intervals, which are not read any more.
int64_t CertifiedRows::ProjectRest() {
  auto* const ends = At<int32_t>(layout_.dense_rows);
  int64_t count = 0;
  ends[0] = 0;
  for (int64_t r = 0; r < rows_; ++r) {
    if (states_[r].reason == DenseReason::kNone) continue;
    states_[r].result.path = CertifiedPath::kDense;
    states_[r].result.reason = states_[r].reason;
    states_[r].result.margin = 0.0f;
    ends[++count] = static_cast<int32_t>(r) + 1;
  }
  if (count == 0) return 0;
  const MutableLogitsView logits{
      At<float>(layout_.intervals), count, planes_.vocab, layout_.width, DType::kF32, {}};
  head_.table.project(head_.dense, input_.hidden, {ends, static_cast<size_t>(count) + 1}, logits,
                      execution_);
  return count;
}

CertifiedRows::DenseRow CertifiedRows::Logits(int64_t i) const {
  const int64_t row = At<int32_t>(layout_.dense_rows)[i + 1] - 1;
  const std::span<float> logits(At<float>(layout_.intervals) + i * layout_.width,
                                static_cast<size_t>(planes_.vocab));
  const State& state = states_[row];
  if (state.bitmask != nullptr) semantics::ApplyBitmask(logits, state.bitmask);
  state.adjust.ForEach([&](int32_t id, const semantics::TokenAdjust::OfToken& token) {
    float& x = logits[static_cast<size_t>(id)];
    x = state.adjust.Adjusted(x, token);
  });
  return {row, logits};
}

CertifiedStats CertifiedRows::Finish() const {
  const MatrixView& weight = head_.dense.weight;
  const int64_t row_bytes = weight.columns * static_cast<int64_t>(SizeOf(weight.dtype));
  const int64_t plane_row_bytes = planes_.groups * (kRowGroupBytes + int64_t{2});  // a scale
  CertifiedStats stats;
  stats.rows = rows_;
  stats.least_margin = semantics::Infinity();
  stats.dense_bytes = rows_ == 0 ? 0 : planes_.vocab * row_bytes;
  if (scored_ != 0) stats.bytes_read += planes_.tiles() * kTileRows * plane_row_bytes;
  for (int64_t r = 0; r < rows_; ++r) {
    const State& state = states_[r];
    if (!results_.empty()) results_[static_cast<size_t>(r)] = state.result;
    stats.survivors += state.result.survivors;
    stats.bytes_read += state.result.survivors * row_bytes + state.refined * plane_row_bytes;
    stats.dense_rows += state.result.path == CertifiedPath::kDense ? 1 : 0;
    if (state.result.path == CertifiedPath::kPlanes) {
      stats.least_margin = std::min(stats.least_margin, state.result.margin);
    }
  }
  if (stats.dense_rows != 0) stats.bytes_read += stats.dense_bytes;
  return stats;
}

}  // namespace sluice
