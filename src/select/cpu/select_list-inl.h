// Selection of one row for any parameters, without sorting it by definition: the row becomes a list
// of values, every rule moves an end of the interval that is kept, and the rules that look for a
// boundary (typical, top-k, top-p) leave the search to one of the algorithms.
//
// All rules keep an interval of the total order, so values and tie counts say everything. Up to
// top-k a tie is kept or dropped as a whole: the list then holds exactly what is kept. From there
// on the lower end is a value and how many of its ties are kept, and the list may hold more.
#include "semantics/select.h"

#if defined(SLUICE_SELECT_CPU_SELECT_LIST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SLUICE_SELECT_CPU_SELECT_LIST_INL_H_
#undef SLUICE_SELECT_CPU_SELECT_LIST_INL_H_
#else
#define SLUICE_SELECT_CPU_SELECT_LIST_INL_H_
#endif

#include "select/cpu/algorithms/boundary.h"
#include "select/cpu/list_passes-inl.h"
#include "select/select_table.h"

HWY_BEFORE_NAMESPACE();
namespace sluice::HWY_NAMESPACE {

// The memory of one row's list, carved from a worker's workspace: 20 bytes an element.
struct ListMemory {
  Scratch scratch;
  float* values;
  float* weights;
  float* keys;  // of typical

  static size_t Padded(int64_t vocab) { return static_cast<size_t>(vocab) + 32; }
  static size_t Bytes(int64_t vocab) {
    return Padded(vocab) * (sizeof(uint64_t) + 3 * sizeof(float));
  }
  static ListMemory In(std::byte* memory, int64_t vocab) {
    const size_t padded = Padded(vocab);
    float* floats = reinterpret_cast<float*>(memory + padded * sizeof(uint64_t));
    return {{memory, padded}, floats, floats + padded, floats + 2 * padded};
  }
};

class ListSelection {
  using Filter = semantics::Filter;
  using RuleSet = semantics::RuleSet;

 public:
  // values: the row's, in memory.values.
  ListSelection(const SelectParams& params, const ListMemory& memory, const ListedRow& row,
                const BoundaryFinder& finder, SelectWork& work)
      : params_(params),
        scale_(semantics::ScalesOf(params).filter),
        memory_(memory),
        size_(row.size),
        max_(row.max),
        finder_(finder),
        work_(work) {}

  SelectedSet Select(const NoiseKey& key, bool needs_masses) {
    on_ = semantics::RulesOf(params_, key);
    needs_masses_ = needs_masses && !semantics::IsGreedy(params_);
    semantics::ApplyRules(on_, params_, *this);
    if (needs_masses_ && !Has(on_, Filter::kXtc)) mass_.kept = MassOfKept();
    return Result();
  }

  // The rules, for ApplyRules.

  void Greedy() {
    end_ = {max_, 0, 1, 1};
    has_end_ = true;
    mass_.kept = mass_.total = semantics::kFullWeight;
  }

  template <class Floor>
  void KeepFrom(const Floor& rule) {
    const float floor = FloorOf(rule);
    if (has_end_) {
      MoveEndTo(floor);
      return;
    }
    const bool has_max = upper_ == semantics::Infinity();
    const float largest = has_max ? max_ : RangeOf(memory_.values, size_).high;
    CompactFrom(floor);
    if (size_ > 0) return;
    memory_.values[0] = largest;  // after typical: one is kept in any case
    size_ = 1;
  }

  void Typical() {
    CompactFrom(semantics::LeastValue(semantics::kLowestValue, max_,
                                      [&](float x) { return WeightAt(x) > 0; }));
    Weigh();
    const int64_t mean = MeanSurprise(memory_.values, memory_.weights, size_, max_, scale_);
    TypicalKeys(memory_.values, size_, max_, scale_, mean, memory_.keys);
    Reads(2);
    const uint64_t target = AtLeastOne(semantics::TargetMass(params_.typical_p, list_mass_));
    const Boundary boundary = finder_.by_mass_in_any_order(ListAs(memory_.keys, list_mass_), target,
                                                           memory_.scratch, work_);
    const KeyRange kept = RangeOfTypical(memory_.values, memory_.keys, size_, boundary.value);
    Reads(1);
    if (kept.high < max_) upper_ = kept.high;
    const auto low = hn::Set(F32(), kept.low);
    const auto high = hn::Set(F32(), kept.high);
    Reads(1);
    size_ = Compact<Measure::kCount>(
        memory_.values, nullptr, size_, memory_.values, nullptr,
        [&](VecF32 x, VecF32) HWY_ATTR { return hn::And(hn::Ge(x, low), hn::Le(x, high)); });
    is_weighed_ = false;
  }

  // Joint: the list stays as it is, for top-p.
  void TopK() {
    const int64_t k = params_.top_k;
    if (static_cast<size_t>(k) >= size_) return;
    const Boundary boundary = finder_.by_count({memory_.values, nullptr, size_, 0},
                                               static_cast<uint64_t>(k), memory_.scratch, work_);
    const bool all_ties = params_.profile.ties == Ties::kAll;
    end_ = {boundary.value, boundary.above, boundary.ties,
            all_ties ? boundary.ties : k - boundary.above};
    has_end_ = true;
    if (params_.profile.top_k_top_p == TopKTopP::kSequential) CompactFrom(end_.value);
  }

  // Measured on what top-k left, or joint on what it found.
  void TopP() {
    const bool is_joint = params_.profile.top_k_top_p == TopKTopP::kJoint;
    const bool has_top_k = has_end_;
    const End by_count = end_;
    const bool is_limited = has_top_k && !is_joint;  // the list may hold ties that are dropped
    Weigh();
    mass_.total = list_mass_;
    if (is_limited) {
      mass_.total -=
          static_cast<uint64_t>(by_count.ties - by_count.ties_kept) * WeightAt(by_count.value);
    }
    const uint64_t target = semantics::TargetMass(params_.top_p, mass_.total);
    const uint64_t needed =
        AtLeastOne(semantics::ExclusiveTarget(target, params_.profile.top_p_boundary));
    uint64_t through = mass_.total;
    if (needed <= mass_.total) {
      const Boundary boundary =
          finder_.by_mass(ListAs(memory_.values, list_mass_), needed, memory_.scratch, work_);
      const uint64_t weight = WeightAt(boundary.value);
      // Ties that top-k has dropped follow the needed mass, or there are none (Ties::kAll).
      const int64_t ties_kept =
          params_.profile.ties == Ties::kAll
              ? boundary.ties
              : semantics::TopPTiesKept(boundary.mass_above, weight, boundary.ties, needed);
      end_ = {boundary.value, boundary.above, boundary.ties, ties_kept};
      has_end_ = true;
      through = boundary.mass_above + static_cast<uint64_t>(ties_kept) * weight;
    } else if (!is_limited) {
      end_ = LastOfList();
      has_end_ = true;
    }
    const uint64_t before = through - WeightAt(end_.value);
    const uint64_t below = target > before ? target - before : before - target;
    const uint64_t above = through > target ? through - target : target - through;
    mass_.margin = below < above ? below : above;
    if (is_joint && has_top_k) {
      const bool is_less = by_count.value > end_.value ||
                           (by_count.value == end_.value && by_count.ties_kept < end_.ties_kept);
      if (is_less) end_ = by_count;
    }
  }

  void Xtc() {
    mass_.kept = MassOfKept();
    const semantics::uint128_t least = semantics::XtcLeast(params_.xtc_threshold, mass_.kept);
    auto counts = [&](float x) { return semantics::XtcCounts(WeightAt(x), least); };
    const float highest = RangeOf(memory_.values, size_).high;
    Reads(1);
    if (!counts(highest)) return;
    const float threshold = semantics::LeastValue(end_.value, highest, counts);
    const float value = LeastFrom(memory_.values, size_, threshold);
    const End last = value == end_.value ? end_ : EndAt(value);  // of those that count
    Reads(3);
    const int64_t number = last.above + last.ties_kept;
    if (number < 2) return;
    upper_ = last.value;
    ties_dropped_ = last.ties_kept - 1;
    dropped_ = number - 1;
    mass_.kept -=
        MassAbove(last.value) + static_cast<uint64_t>(ties_dropped_) * WeightAt(last.value);
  }

  void BeforeTopK() {}  // a joint top-k leaves the list as it is

  void After(Filter filter) {
    const bool measures = filter == Filter::kTopP && needs_masses_ && !Has(on_, Filter::kTopP);
    if (measures) mass_.total = TotalWithoutTopP();
  }

 private:
  // The lower end of what is kept: of the list's `ties` equal to value, the first `ties_kept` by
  // id.
  struct End {
    float value;
    int64_t above;
    int64_t ties;
    int64_t ties_kept;
  };

  void Reads(int64_t times) { work_.elements_read += times * static_cast<int64_t>(size_); }

  Elements ListAs(const float* keys, uint64_t mass) const {
    return {keys, memory_.weights, size_, mass};
  }

  void CompactFrom(float least) {
    Reads(1);
    const auto vleast = hn::Set(F32(), least);
    size_ = Compact<Measure::kCount>(memory_.values, nullptr, size_, memory_.values, nullptr,
                                     [&](VecF32 x, VecF32) HWY_ATTR { return hn::Ge(x, vleast); });
    is_weighed_ = false;
  }

  void Weigh() {
    if (is_weighed_) return;
    Reads(1);
    list_mass_ = WeighValues(memory_.values, size_, max_, scale_, memory_.weights);
    is_weighed_ = true;
  }

  uint64_t WeightAt(float value) const { return semantics::Weight(value, max_, scale_); }

  static uint64_t AtLeastOne(uint64_t target) { return target == 0 ? 1 : target; }

  // The mass that top-p would be measured on.
  uint64_t TotalWithoutTopP() {
    if (params_.profile.top_k_top_p == TopKTopP::kSequential) return MassOfKept();
    Weigh();
    return list_mass_;
  }

  // The end of a list that nothing has been dropped from.
  End LastOfList() {
    Reads(2);
    const float value = RangeOf(memory_.values, size_).low;
    return EndAt(value);
  }

  // All of the list from a value that it holds on.
  End EndAt(float value) {
    const float next = semantics::ValueOfKey(semantics::OrderKey(value) + 1);
    const int64_t above = TallyFrom<Measure::kCount>(memory_.values, nullptr, size_, next).count();
    const int64_t through =
        TallyFrom<Measure::kCount>(memory_.values, nullptr, size_, value).count();
    return {value, above, through - above, through - above};
  }

  void FindEnd() {
    if (!has_end_) end_ = LastOfList();
    has_end_ = true;
  }

  uint64_t MassAbove(float value) {
    const float next = semantics::ValueOfKey(semantics::OrderKey(value) + 1);
    Reads(1);
    return TallyFrom<Measure::kMass>(memory_.values, memory_.weights, size_, next).mass();
  }

  uint64_t MassOfKept() {
    FindEnd();
    Weigh();
    return MassAbove(end_.value) + static_cast<uint64_t>(end_.ties_kept) * WeightAt(end_.value);
  }

  template <class Floor>
  float FloorOf(const Floor& rule) {
    semantics::FloorSums sums;
    if constexpr (Floor::kSums > 0) {
      Reads(1);
      const float last = has_end_ ? end_.value : -semantics::Infinity();
      for (size_t i = 0; i < size_; ++i) {
        const float x = memory_.values[i];
        if (x > last) sums.Add(rule.TermsOf(x, max_, scale_), 1);
      }
      if (has_end_) {
        sums.Add(rule.TermsOf(last, max_, scale_), static_cast<uint64_t>(end_.ties_kept));
      }
    }
    return rule.From(sums, max_, scale_);
  }

  // With vectors; before any rule that leaves more in the list than it keeps.
  float FloorOf(const semantics::TopNSigmaFloor& rule) {
    Reads(1);
    return semantics::SigmaThreshold(SigmaBoundOf(memory_.values, size_, max_, rule.n_sigma), max_);
  }

  void MoveEndTo(float floor) {
    if (end_.value >= floor) return;
    Reads(3);
    const float value = LeastFrom(memory_.values, size_, floor);
    if (value == semantics::Infinity()) {  // after typical: one is kept in any case
      end_ = EndAt(RangeOf(memory_.values, size_).high);
      end_.ties_kept = 1;
    } else {
      end_ = EndAt(value);
    }
  }

  SelectedSet Result() {
    FindEnd();
    SelectedSet selected;
    selected.max = max_;
    selected.mass = mass_;
    selected.cut.upper = upper_;
    selected.cut.ties_dropped = static_cast<int32_t>(ties_dropped_);
    selected.cut.lower = end_.value;
    selected.cut.ties_kept = static_cast<int32_t>(end_.ties_kept);
    selected.cut.count = static_cast<int32_t>(end_.above + end_.ties_kept - dropped_);
    return selected;
  }

  const SelectParams& params_;
  const float scale_;
  const ListMemory memory_;
  size_t size_;  // of the list
  const float max_;
  const BoundaryFinder& finder_;
  SelectWork& work_;

  RuleSet on_ = RuleSet::kNone;
  bool needs_masses_ = false;
  bool is_weighed_ = false;
  uint64_t list_mass_ = 0;  // once it is weighed
  bool has_end_ = false;
  End end_ = {};
  float upper_ = semantics::Infinity();
  int64_t ties_dropped_ = 0;
  int64_t dropped_ = 0;  // by XTC
  CutMass mass_ = {};
};

// Parameters have been found valid. workspace: ListMemory::Bytes. algorithm: what to report.
template <class Read>
SelectedSet SelectFromList(const RowRequest& request, const BoundaryFinder& finder,
                           SelectAlgorithm algorithm, std::byte* workspace) {
  const ListMemory memory = ListMemory::In(workspace, request.row.size);
  SelectedSet selected;
  const ListedRow row = ListRow<Read>(request.row, memory.values);
  RowStatus status = row.size == 0 ? RowStatus::kEmptySupport : RowStatus::kOk;
  if (row.checksum != row.checksum || row.max == semantics::Infinity()) {
    status = semantics::ScanRow(request.row).status;
  }
  SelectWork work{algorithm, request.row.size};
  if (status == RowStatus::kOk) {
    selected = ListSelection(request.params, memory, row, finder, work)
                   .Select(request.key, request.needs_masses);
  } else {
    selected.cut = semantics::CutOfStatus(status);
  }
  selected.work = work;
  return selected;
}

}  // namespace sluice::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard per target
