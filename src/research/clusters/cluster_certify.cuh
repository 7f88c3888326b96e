// Whether what is open of a row of a search is its answer, by a block.
#pragma once

#include "cuda/team.cuh"
#include "research/clusters/cluster_call.h"
#include "semantics/order.h"

namespace sluice::research {

using namespace cuda;

inline constexpr int kClusterThreads = 1024;

class ClusterCertification {
 public:
  // round: those that are over.
  __device__ ClusterCertification(const ClusterArgument& call, int round, TeamMemory& memory,
                                  int row)
      : call_(call),
        team_(memory),
        row_(row),
        round_(round),
        progress_(call_.memory.progress[row]),
        open_(progress_.open[round]),
        logits_(call_.memory.logits + int64_t{row} * call_.head.vocab),
        weights_(reinterpret_cast<double*>(call_.memory.room + row * call_.memory.room_stride)) {}

  __device__ bool IsDone() const { return progress_.is_done; }

  // Ends the row where there is an answer.
  __device__ void Certify() {
    if (progress_.has_broken != 0) return End(ClusterPath::kDense, ClusterReason::kLogit, 0);
    const ClusterPath path = round_ <= kBudgetRounds    ? ClusterPath::kBudget
                             : round_ == kExpandedRound ? ClusterPath::kExpanded
                                                        : ClusterPath::kDense;
    const bool is_dense = path == ClusterPath::kDense;
    const int count = Certain();
    if (count > 0) {
      return End(path, is_dense ? ClusterReason::kBudget : ClusterReason::kNone, count);
    }
    const double looser = 2.0 * call_.question.epsilon;
    if (round_ == kExpandedRound && call_.budget.relaxes && looser < 1.0 && Is(Kind::kSoftmax) &&
        SoftmaxHolds(closed_, mass_, looser)) {
      return End(ClusterPath::kRelaxed, ClusterReason::kNone, open_.rows);
    }
    // Of finite logits all rows are an answer; if not, none is given.
    if (round_ == kRounds) End(path, ClusterReason::kLogit, 0);
  }

 private:
  using Kind = ClusterCertificate;
  __device__ bool Is(Kind kind) const { return call_.question.certificate == kind; }
  __device__ bool IsAll() const { return open_.rows == call_.head.vocab; }

  __device__ void End(ClusterPath path, ClusterReason reason, int count) const {
    if (team_.thread() != 0) return;
    ClusterProgress& progress = call_.memory.progress[row_];
    progress.is_done = true;
    progress.most_closed = most_closed_;
    progress.above = above_;
    progress.answer = {count, path, reason, open_.clusters, open_.rows, 0.0};
    if (count > 0 && Is(Kind::kSoftmax)) progress.answer.epsilon = MostVariation(closed_, mass_);
  }

  // How many of the open rows are the answer for certain; 0: it is not known.
  __device__ int Certain() {
    if (!IsAll()) most_closed_ = Row(call_.memory.sorted, 0)[open_.clusters];
    if (!Is(Kind::kSoftmax)) {
      const auto bound = static_cast<double>(most_closed_);
      above_ = Count([&](float x) { return IsAboveClosed(x, bound); });
    }
    if (Is(Kind::kTopK)) return above_ >= call_.question.k ? call_.question.k : 0;
    const float most = semantics::ValueOfKey(progress_.most);
    double mass = 0.0;
#pragma unroll 4
    for (int i = team_.thread(); i < open_.rows; i += kClusterThreads) {
      weights_[i] = ClusterWeight(static_cast<double>(logits_[i]), most, Temperature());
      mass += weights_[i];
    }
    mass_ = team_.ReduceBlock(mass, Plus{});
    closed_ = ClosedMass(most);
    if (Is(Kind::kTopP)) return SizeOfNucleus(most);
    return SoftmaxHolds(closed_, mass_, call_.question.epsilon) ? open_.rows : 0;
  }

  // Of a part of the workspace with an element a cluster, and some more.
  template <typename T>
  __device__ const T* Row(const T* part, int more) const {
    return part + int64_t{row_} * (call_.clusters + more);
  }
  __device__ double Temperature() const { return call_.question.temperature; }

  __device__ double ClosedMass(float most) const {
    const float* const sorted = Row(call_.memory.sorted, 0);
    const int32_t* const starts = Row(call_.memory.starts, 1);
    double mass = 0.0;
    for (int i = open_.clusters + team_.thread(); i < call_.clusters; i += kClusterThreads) {
      mass += static_cast<double>(starts[i + 1] - starts[i]) *
              ClusterWeight(static_cast<double>(sorted[i]), most, Temperature());
    }
    return team_.ReduceBlock(mass, Plus{});
  }

  // Open rows, and their mass.
  template <typename IsIn>
  __device__ int Count(IsIn is_in) const {
    uint64_t count = 0;
#pragma unroll 8
    for (int i = team_.thread(); i < open_.rows; i += kClusterThreads) {
      count += is_in(logits_[i]) ? 1 : 0;
    }
    return static_cast<int>(team_.SumOfBlock(count));
  }
  template <typename IsIn>
  __device__ double Mass(IsIn is_in) const {
    double mass = 0.0;
#pragma unroll 8
    for (int i = team_.thread(); i < open_.rows; i += kClusterThreads) {
      if (is_in(logits_[i])) mass += weights_[i];
    }
    return team_.ReduceBlock(mass, Plus{});
  }

  // Top-p by bisection of where its last token lies: a sum in one order never falls where more is
  // added.
  __device__ int SizeOfNucleus(float most) const {
    const NucleusEnds ends = NucleusEndsOf(call_.question.p, mass_, closed_, IsAll());
    auto mass_from = [&](uint32_t key) {
      return Mass([&](float x) { return semantics::OrderKey(x) >= key; });
    };
    uint32_t low = IsAll() ? 0 : semantics::OrderKey(most_closed_) + 1;
    uint32_t high = progress_.most;
    if (low > high || !(mass_from(low) >= ends.high)) return 0;
#pragma unroll 1
    while (low < high) {
      const uint32_t middle = high - (high - low) / 2;
      if (mass_from(middle) >= ends.high) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    const double above = Mass([&](float x) { return semantics::OrderKey(x) > low; });
    if (above >= ends.low) return 0;  // the nucleus may end before this value
    const int count_above = Count([&](float x) { return semantics::OrderKey(x) > low; });
    const int ties = Count([&](float x) { return semantics::OrderKey(x) == low; });
    const double weight =
        ClusterWeight(static_cast<double>(semantics::ValueOfKey(low)), most, Temperature());
    auto ties_of = [&](double end) {
      const double wanted = ceil((end - above) / weight);
      return wanted < 1.0                         ? 1
             : wanted < static_cast<double>(ties) ? static_cast<int>(wanted)
                                                  : ties;
    };
    const int kept = ties_of(ends.high);
    return ties_of(ends.low) == kept ? count_above + kept : 0;
  }

  const ClusterArgument& call_;
  const Team team_;
  const int row_;
  const int round_;
  const ClusterProgress progress_;
  const ClusterProgress::Open open_;
  const float* const logits_;
  double* const weights_;
  float most_closed_ = -INFINITY;  // bound
  int above_ = 0;                  // open logits that are above it
  double mass_ = 0.0;              // of open rows
  double closed_ = 0.0;            // of the others, at most
};

}  // namespace sluice::research
