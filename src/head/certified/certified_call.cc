#include "head/certified/certified_call.h"

#include <algorithm>
#include <cmath>

#include "head/certified/cuda/survivor_budget.h"
#include "semantics/token_mask.h"
#include "support/check.h"
#include "support/rows.h"

namespace sluice {
namespace {

constexpr int64_t kMaxDim = int64_t{1} << 20;
constexpr int64_t kTilesInTask = 32;

// What is known of a row on its way through the call.
struct RowState {
  RowQuestion::Need need;
  bool is_few;             // so few tokens are allowed that they are computed without scores
  const int32_t* bitmask;  // of all masks; null: none
  semantics::TokenAdjust adjust;
  DenseReason reason;
  HiddenState hidden;
  CertifiedRow result;
  int64_t refined;
};

// Where everything lies in the workspace: a part of the call, then a part of each worker.
struct CallLayout {
  CallLayout(const PlaneView& planes, int64_t rows, size_t question_bytes)
      : width(planes.tiles() * kTileRows) {
    const auto count = static_cast<size_t>(rows);
    const auto vocab = static_cast<size_t>(planes.vocab);
    groups = RoundUp(count * sizeof(RowState));
    intervals = groups + RoundUp(count * static_cast<size_t>(planes.groups) * sizeof(HiddenGroup));
    scored = intervals + RoundUp(2 * count * static_cast<size_t>(width) * sizeof(float));
    scored_intervals = scored + RoundUp(count * sizeof(HiddenState));
    dense_rows = scored_intervals + RoundUp(count * sizeof(Intervals));
    masks = dense_rows + RoundUp((count + 1) * sizeof(int32_t));
    mask_words = (planes.vocab + 31) / 32;
    call_bytes = masks + RoundUp(count * static_cast<size_t>(mask_words) * sizeof(int32_t));

    ids = RoundUp(vocab * sizeof(semantics::Token));
    refined = ids + RoundUp(vocab * sizeof(int32_t));
    scores_before = refined + RoundUp(vocab);
    question = scores_before + (planes.low_codes == nullptr ? 0 : RoundUp(vocab * sizeof(float)));
    worker_bytes = question + RoundUp(question_bytes);
  }

  int64_t width;  // of a row of scores
  int64_t mask_words;
  size_t groups, intervals, scored, scored_intervals, dense_rows, masks, call_bytes;
  size_t ids, refined, scores_before, question, worker_bytes;
};

class Call {
 public:
  Call(const CertifiedHead& head, const CertifiedInput& input, RowQuestion& question,
       const Execution& execution, size_t question_bytes)
      : head_(head.head()),
        planes_(PlaneAccess::View(head.planes())),
        input_(input),
        question_(question),
        execution_(execution),
        dense_(DenseHeadTableFor(execution.backend)),
        score_(ScoreTableFor(execution.backend)),
        layout_(planes_, input.hidden.rows, question_bytes),
        rows_(input.hidden.rows),
        states_(At<RowState>(0)) {}

  CertifiedStats Run(std::span<CertifiedRow> results) {
    ForEachRow(execution_.parallel, rows_, [&](int64_t r, int) { PrepareRow(r); });
    ScoreAll();
    ForEachRow(execution_.parallel, rows_, [&](int64_t r, int worker) { CertifyRow(r, worker); });
    ComputeDenseRows();
    for (size_t r = 0; r < results.size(); ++r) results[r] = states_[r].result;
    return Stats();
  }

 private:
  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(execution_.workspace.data() + offset);
  }
  std::byte* Worker(int worker) const {
    return execution_.workspace.data() + layout_.call_bytes +
           static_cast<size_t>(worker) * layout_.worker_bytes;
  }
  std::byte* QuestionMemory(int worker) const { return Worker(worker) + layout_.question; }

  Intervals IntervalsOf(int64_t r) const {
    float* const scores = At<float>(layout_.intervals) + 2 * r * layout_.width;
    return {scores, scores + layout_.width};
  }
  RowMemory Memory(int64_t r, int worker) const {
    std::byte* const own = Worker(worker);
    return {IntervalsOf(r), reinterpret_cast<semantics::Token*>(own),
            reinterpret_cast<int32_t*>(own + layout_.ids),
            reinterpret_cast<uint8_t*>(own + layout_.refined),
            planes_.low_codes == nullptr ? nullptr
                                         : reinterpret_cast<float*>(own + layout_.scores_before)};
  }
  semantics::Row Hidden(int64_t r) const {
    return {input_.hidden.Row(r), input_.hidden.dtype, input_.hidden.columns};
  }

  // The masks of the input and of the row as one, and what changes single logits.
  void PrepareAdjusts(int64_t r) {
    RowState& state = states_[r];
    if (!input_.bitmask.empty()) state.bitmask = input_.bitmask.data() + r * layout_.mask_words;
    semantics::AdjustInput adjust;
    if (!question_.Adjusts(r, adjust)) return;
    state.adjust = semantics::TokenAdjust(adjust);
    if (!semantics::MasksTokens(adjust)) return;
    adjust.bitmask = state.bitmask;
    int32_t* const words = At<int32_t>(layout_.masks) + r * layout_.mask_words;
    semantics::MaskTokens(adjust, {words, static_cast<size_t>(layout_.mask_words)});
    state.bitmask = words;
  }

  void PrepareRow(int64_t r) {
    RowState& state = states_[r];
    state = {};
    state.result.margin = semantics::Infinity();
    state.need = question_.Prepare(r);
    if (state.need == RowQuestion::Need::kNothing) return;
    PrepareAdjusts(r);
    state.is_few =
        state.bitmask != nullptr &&
        RowCertificate::AllowedCount(state.bitmask, planes_.vocab) <= FewAllowed(planes_.vocab);
    if (state.is_few) return;
    if (state.need == RowQuestion::Need::kDense) {
      state.reason = DenseReason::kParameters;
      return;
    }
    HiddenGroup* const groups = At<HiddenGroup>(layout_.groups) + r * planes_.groups;
    if (EncodeHidden(Hidden(r), planes_, groups, state.hidden)) return;
    if (HasNan(r)) {  // then so is every logit
      state.need = RowQuestion::Need::kNothing;
      question_.Fail(r, RowStatus::kNanInput);
      return;
    }
    state.need = RowQuestion::Need::kDense;
    state.reason = DenseReason::kHidden;
  }

  bool HasNan(int64_t r) const {
    const semantics::Row hidden = Hidden(r);
    for (int64_t j = 0; j < hidden.size; ++j) {
      if (semantics::IsNan(hidden[j])) return true;
    }
    return false;
  }

  bool IsScored(int64_t r) const {
    return states_[r].need == RowQuestion::Need::kPlanes && !states_[r].is_few;
  }

  void ScoreAll() {
    auto* const states = At<HiddenState>(layout_.scored);
    auto* const intervals = At<Intervals>(layout_.scored_intervals);
    for (int64_t r = 0; r < rows_; ++r) {
      if (!IsScored(r)) continue;
      states[scored_] = states_[r].hidden;
      intervals[scored_++] = IntervalsOf(r);
    }
    if (scored_ == 0) return;
    const int64_t tasks = (planes_.tiles() + kTilesInTask - 1) / kTilesInTask;
    ForEachRow(execution_.parallel, tasks, [&](int64_t task, int) {
      const int64_t begin = task * kTilesInTask;
      score_.score(planes_, head_.bias, {states, scored_}, {intervals, scored_}, begin,
                   std::min(begin + kTilesInTask, planes_.tiles()));
    });
  }

  void CertifyRow(int64_t r, int worker) {
    RowState& state = states_[r];
    if (state.need == RowQuestion::Need::kNothing) return;
    if (!state.is_few && state.need == RowQuestion::Need::kDense) return;
    RowCertificate certificate(head_, planes_, Hidden(r), state.hidden, state.bitmask, dense_,
                               score_, Memory(r, worker), SurvivorBudget(planes_.vocab, rows_),
                               state.adjust);
    DenseReason open = DenseReason::kNone;
    if (state.is_few) {
      state.result.path = CertifiedPath::kAllowed;
      const TopTokens all = certificate.ComputeAllowed();
      if (certificate.status() == RowStatus::kOk) {
        question_.FromTokens(r, all, QuestionMemory(worker));
      }
    } else {
      state.result.path = CertifiedPath::kPlanes;
      if (!certificate.Start()) {
        open = DenseReason::kSurvivors;
      } else if (certificate.status() == RowStatus::kOk) {
        open = question_.Certify(r, certificate, QuestionMemory(worker));
      }
    }
    if (open == DenseReason::kNone && certificate.status() != RowStatus::kOk) {
      question_.Fail(r, certificate.status());
    }
    state.result.survivors = static_cast<int32_t>(certificate.survivors());
    state.result.margin = certificate.margin();
    state.refined = certificate.refined();
    if (open != DenseReason::kNone) {
      state.need = RowQuestion::Need::kDense;
      state.reason = open;
    }
  }

  // In the memory of the intervals, which nobody reads any more.
  void ComputeDenseRows() {
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
    if (count == 0) return;
    float* const logits = At<float>(layout_.intervals);
    const MutableLogitsView view{logits, count, planes_.vocab, layout_.width, DType::kF32, {}};
    dense_.project(head_, input_.hidden, {ends, static_cast<size_t>(count) + 1}, view, execution_);
    ForEachRow(execution_.parallel, count, [&](int64_t i, int worker) {
      const int64_t r = ends[i + 1] - 1;
      const std::span<float> row(static_cast<float*>(view.Row(i)),
                                 static_cast<size_t>(planes_.vocab));
      const RowState& state = states_[r];
      if (state.bitmask != nullptr) semantics::ApplyBitmask(row, state.bitmask);
      state.adjust.ForEach([&](int32_t id, const semantics::TokenAdjust::OfToken& token) {
        float& x = row[static_cast<size_t>(id)];
        x = state.adjust.Adjusted(x, token);
      });
      question_.FromLogits(r, row, Memory(r, worker), QuestionMemory(worker));
    });
  }

  CertifiedStats Stats() const {
    const int64_t row_bytes =
        head_.weight.columns * static_cast<int64_t>(SizeOf(head_.weight.dtype));
    const int64_t plane_row_bytes = planes_.groups * (kRowGroupBytes + int64_t{2});  // a scale
    CertifiedStats stats;
    stats.rows = rows_;
    stats.least_margin = semantics::Infinity();
    stats.dense_bytes = rows_ == 0 ? 0 : planes_.vocab * row_bytes;
    if (scored_ != 0) stats.bytes_read += planes_.tiles() * kTileRows * plane_row_bytes;
    for (int64_t r = 0; r < rows_; ++r) {
      const RowState& state = states_[r];
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

  const DenseHead& head_;
  const PlaneView planes_;
  const CertifiedInput& input_;
  RowQuestion& question_;
  const Execution& execution_;
  const DenseHeadTable& dense_;
  const ScoreTable& score_;
  const CallLayout layout_;
  const int64_t rows_;
  RowState* const states_;
  size_t scored_ = 0;
};

}  // namespace

bool RowQuestion::Adjusts(int64_t, semantics::AdjustInput&) { return false; }

size_t CertifiedCallBytes(const CertifiedHead& head, int64_t rows, const Execution& execution,
                          size_t question_bytes) {
  CheckInRange("rows", rows, 0, INT32_MAX);
  CheckWorkers(execution);
  const CallLayout layout(PlaneAccess::View(head.planes()), rows, question_bytes);
  return layout.call_bytes + WorkspaceBytes(execution, layout.worker_bytes);
}

void CheckHidden(const CertifiedHead& head, const MatrixView& hidden) {
  const int64_t dim = head.head().weight.columns;
  CheckMatrix("hidden", "dim", hidden, kMaxDim);
  CheckInRange("hidden.dim", hidden.columns, dim, dim);
}

CertifiedStats RunCertifiedCall(const CertifiedHead& head, const CertifiedInput& input,
                                RowQuestion& question, std::span<CertifiedRow> rows,
                                const Execution& execution, size_t question_bytes) {
  const int64_t vocab = head.head().weight.rows;
  if (!input.bitmask.empty()) {
    CheckSize("bitmask", input.bitmask.size(), input.hidden.rows * ((vocab + 31) / 32));
  }
  if (!rows.empty()) CheckSize("rows", rows.size(), input.hidden.rows);
  CheckExecution(execution, CertifiedCallBytes(head, input.hidden.rows, execution, question_bytes));
  return Call(head, input, question, execution, question_bytes).Run(rows);
}

}  // namespace sluice
