// What a block makes of a row of a search between two rounds: the answer, where what is open is one
// for certain, or the clusters to open next.
#pragma once

#include "backend/find.cuh"
#include "backend/token_list.cuh"
#include "head/cluster_call.h"

namespace sluice::cuda {

inline constexpr int kClusterThreads = 1024;

struct ClusterStepMemory {
  TeamMemory team;
  FindMemory find;
};

// Of one row, by a block.
class ClusterStep {
 public:
  // round: those that are over.
  __device__ ClusterStep(const ClusterArgument& call, int round, ClusterStepMemory& memory, int row)
      : call_(call),
        memory_(memory),
        team_(memory.team),
        row_(row),
        round_(round),
        course_(call_.memory.courses[row]),
        bounds_(call_.memory.bounds + int64_t{row} * call_.clusters),
        logits_(call_.memory.logits + int64_t{row} * call_.head.vocab),
        weights_(reinterpret_cast<double*>(call_.memory.room + row * call_.memory.room_stride)) {}

  __device__ bool IsDone() const { return course_.is_done; }

  // The answer to the row, where there is one.
  __device__ bool Answer() {
    if (course_.has_broken != 0) return End(ClusterPath::kDense, ClusterReason::kLogit, 0);
    const ClusterPath path = round_ <= kBudgetRounds    ? ClusterPath::kBudget
                             : round_ == kExpandedRound ? ClusterPath::kExpanded
                                                        : ClusterPath::kDense;
    const bool is_dense = path == ClusterPath::kDense;
    const int count = round_ == 0 ? 0 : Certain();
    if (count > 0) {
      return End(path, is_dense ? ClusterReason::kBudget : ClusterReason::kNone, count);
    }
    const double looser = 2.0 * call_.question.epsilon;
    if (round_ == kExpandedRound && call_.budget.relaxes && looser < 1.0 && Is(Kind::kSoftmax) &&
        SoftmaxHolds(closed_, mass_, looser)) {
      return End(ClusterPath::kRelaxed, ClusterReason::kNone, course_.rows);
    }
    // Of finite logits all rows are an answer; if not, none is given.
    return round_ == kRounds && End(path, ClusterReason::kLogit, 0);
  }

  // Lists the clusters of the next round.
  __device__ void Open() {
    const int64_t target = Target();
    uint64_t from = 0;
    if (target < call_.head.vocab) {
      auto sizes_of = [&](auto is_in, auto key_of) {
        return [&, is_in, key_of](auto add) {
          for (int c = team_.thread(); c < call_.clusters; c += kClusterThreads) {
            if (is_in(c)) add(key_of(c), 1u, static_cast<uint64_t>(call_.shapes[c].size));
          }
        };
      };
      auto key_of = [&](int c) { return semantics::OrderKey(bounds_[c]); };
      const auto wanted = static_cast<uint64_t>(target);
      const Found found = Find<Amount::kMass>(team_, memory_.find, wanted,
                                              sizes_of([](int) { return true; }, key_of));
      from = uint64_t{found.key} << 32;
      if (found.count > 1) {
        const Found tie =
            Find<Amount::kMass>(team_, memory_.find, wanted - found.above,
                                sizes_of([&](int c) { return key_of(c) == found.key; },
                                         [](int c) { return ~static_cast<uint32_t>(c); }));
        from |= tie.key;
      }
    }
    int32_t* const list = call_.memory.list + int64_t{row_} * call_.clusters;
    int32_t* const starts = call_.memory.starts + int64_t{row_} * call_.clusters;
    int clusters = course_.clusters, rows = course_.rows;
#pragma unroll 1
    for (int base = 0; base < call_.clusters; base += kClusterThreads) {
      const int c = base + team_.thread();
      const bool opens = c < call_.clusters && !IsOpen(c) && KeyOfToken(bounds_[c], c) >= from;
      const uint64_t mine =
          opens ? uint64_t{1} << 32 | static_cast<uint32_t>(call_.shapes[c].size) : 0;
      const Team::Sums<uint64_t> sums = team_.SumsOfBlock(mine);
      if (opens) {
        const int place = clusters + static_cast<int>(sums.before >> 32);
        list[place] = c;
        starts[place] = rows + static_cast<int>(sums.before & 0xffffffffu);
      }
      clusters += static_cast<int>(sums.all >> 32);
      rows += static_cast<int>(sums.all & 0xffffffffu);
    }
    if (team_.thread() != 0) return;
    ClusterCourse& course = call_.memory.courses[row_];
    course.open_from = from;
    course.clusters = clusters;
    course.rows_before = course_.rows;
    course.rows = rows;
  }

 private:
  using Kind = ClusterCertificate;
  __device__ bool Is(Kind kind) const { return call_.question.certificate == kind; }
  __device__ bool IsAll() const { return course_.rows == call_.head.vocab; }
  __device__ bool IsOpen(int c) const { return KeyOfToken(bounds_[c], c) >= course_.open_from; }

  // Rows that are open behind the next round, or more.
  __device__ int64_t Target() const {
    const int64_t vocab = call_.head.vocab;
    if (round_ >= kExpandedRound) return vocab;
    const double share = round_ == kBudgetRounds ? 2.0 : 1.0 / (1 << (kBudgetRounds - 1 - round_));
    const double rows = ceil(share * course_.budget);
    return rows >= static_cast<double>(vocab) ? vocab
           : rows >= 1.0                      ? static_cast<int64_t>(rows)
                                              : 1;
  }

  __device__ bool End(ClusterPath path, ClusterReason reason, int count) {
    if (team_.thread() == 0) {
      ClusterCourse& course = call_.memory.courses[row_];
      course.is_done = true;
      course.answer = {count, path, reason, course_.clusters, course_.rows, 0.0};
      if (count > 0 && Is(Kind::kSoftmax)) course.answer.epsilon = MostVariation(closed_, mass_);
    }
    return true;
  }

  // How many of the open rows are the answer for certain; 0: it is not known.
  __device__ int Certain() {
    const float most_closed = LookAtClosed();
    if (Is(Kind::kTopK)) {
      const auto bound = static_cast<double>(most_closed);
      const int above = Count([&](float x) { return IsAboveClosed(x, bound); });
      return above >= call_.question.k ? call_.question.k : 0;
    }
    const float most = semantics::ValueOfKey(course_.most);
    double mass = 0.0;
    for (int i = team_.thread(); i < course_.rows; i += kClusterThreads) {
      weights_[i] = ClusterWeight(static_cast<double>(logits_[i]), most, Temperature());
      mass += weights_[i];
    }
    mass_ = team_.ReduceBlock(mass, Plus{});
    if (Is(Kind::kTopP)) return SizeOfNucleus(most, most_closed);
    return SoftmaxHolds(closed_, mass_, call_.question.epsilon) ? course_.rows : 0;
  }

  __device__ double Temperature() const { return call_.question.temperature; }

  // The largest bound of a closed cluster, and the mass of all.
  __device__ float LookAtClosed() {
    const float most = semantics::ValueOfKey(course_.most);
    uint64_t key = 0;
    double mass = 0.0;
    for (int c = team_.thread(); c < call_.clusters; c += kClusterThreads) {
      if (IsOpen(c)) continue;
      const float bound = bounds_[c];
      key = max(key, uint64_t{semantics::OrderKey(bound)});
      if (Is(Kind::kTopK)) continue;
      mass += static_cast<double>(call_.shapes[c].size) *
              ClusterWeight(static_cast<double>(bound), most, Temperature());
    }
    closed_ = team_.ReduceBlock(mass, Plus{});
    key = team_.MaxOfBlock(key);
    return key == 0 ? -INFINITY : semantics::ValueOfKey(static_cast<uint32_t>(key));
  }

  // Open rows, and their mass.
  template <typename IsIn>
  __device__ int Count(IsIn is_in) const {
    uint64_t count = 0;
    for (int i = team_.thread(); i < course_.rows; i += kClusterThreads)
      count += is_in(logits_[i]) ? 1 : 0;
    return static_cast<int>(team_.SumOfBlock(count));
  }
  template <typename IsIn>
  __device__ double Mass(IsIn is_in) const {
    double mass = 0.0;
    for (int i = team_.thread(); i < course_.rows; i += kClusterThreads) {
      if (is_in(logits_[i])) mass += weights_[i];
    }
    return team_.ReduceBlock(mass, Plus{});
  }

  // Top-p by bisection of where its last token lies: a sum in one order never falls where more is
  // added.
  __device__ int SizeOfNucleus(float most, float most_closed) const {
    const NucleusEnds ends = NucleusEndsOf(call_.question.p, mass_, closed_, IsAll());
    auto mass_from = [&](uint32_t key) {
      return Mass([&](float x) { return semantics::OrderKey(x) >= key; });
    };
    uint32_t low = IsAll() ? 0 : semantics::OrderKey(most_closed) + 1;
    uint32_t high = course_.most;
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
  ClusterStepMemory& memory_;
  const Team team_;
  const int row_;
  const int round_;
  const ClusterCourse course_;
  const float* const bounds_;
  const float* const logits_;
  double* const weights_;
  double mass_ = 0.0;    // of open rows
  double closed_ = 0.0;  // of the others, at most
};

}  // namespace sluice::cuda
