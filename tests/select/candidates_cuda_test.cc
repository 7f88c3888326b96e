// Candidates on a GPU are those of the reference, bit for bit, and a bounded list is its beginning.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "sluice/cuda/candidates.hpp"
#include "tests/support/any_cut.h"
#include "tests/support/bad_input.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

constexpr CandidateOrder kOrders[] = {CandidateOrder::kById, CandidateOrder::kByRank};

class CudaCandidates : public DeviceTest, public ::testing::WithParamInterface<DType> {};

struct Lists {
  std::vector<int64_t> offsets;
  std::vector<int32_t> ids;
  std::vector<float> logits;
  std::vector<uint64_t> weights;

  explicit Lists(std::vector<int64_t> row_offsets)
      : offsets(std::move(row_offsets)),
        ids(static_cast<size_t>(offsets.back()), -1),
        logits(ids.size(), -std::numeric_limits<float>::infinity()),
        weights(ids.size()) {}

  void ExpectSame(const Lists& expected) const {
    EXPECT_TRUE(SameSequence(offsets, expected.offsets));
    EXPECT_TRUE(SameSequence(ids, expected.ids));
    EXPECT_TRUE(SameSequence(logits, expected.logits));
    EXPECT_TRUE(SameSequence(weights, expected.weights));
  }
};

Lists Reference(const SelectInput& input, const std::vector<Cut>& cuts, CandidateOrder order) {
  std::vector<int64_t> offsets(cuts.size() + 1);
  for (size_t r = 0; r < cuts.size(); ++r) offsets[r + 1] = offsets[r] + cuts[r].count;
  Lists lists(std::move(offsets));
  const Workspace workspace(SelectWorkspaceBytes(input.logits, {Backend::kRef}));
  Collect(input, cuts, order, {lists.offsets, lists.ids, lists.logits, lists.weights},
          {Backend::kRef, {}, workspace.span()});
  return lists;
}

// The first `capacity` of each row, and what says nothing behind them.
Lists FirstOfEach(const Lists& all, int64_t capacity, bool is_padded) {
  std::vector<int64_t> offsets(1);
  for (size_t r = 0; r + 1 < all.offsets.size(); ++r) {
    const int64_t count = std::min(all.offsets[r + 1] - all.offsets[r], capacity);
    offsets.push_back(offsets[r] + (is_padded ? capacity : count));
  }
  Lists first(std::move(offsets));
  for (size_t r = 0; r + 1 < all.offsets.size(); ++r) {
    const int64_t count = std::min(all.offsets[r + 1] - all.offsets[r], capacity);
    for (int64_t i = 0; i < count; ++i) {
      const auto to = static_cast<size_t>(first.offsets[r] + i);
      const auto from = static_cast<size_t>(all.offsets[r] + i);
      first.ids[to] = all.ids[from];
      first.logits[to] = all.logits[from];
      first.weights[to] = all.weights[from];
    }
  }
  return first;
}

Lists Collected(const RequestRowsOnDevice& rows, const OnDevice<Cut>& cuts, CandidateOrder order,
                const OnDevice<int64_t>& offsets) {
  Lists lists(offsets.Get());
  const size_t size = lists.ids.size();
  const OnDevice<int32_t> ids(size);
  const OnDevice<float> logits(size);
  const OnDevice<uint64_t> weights(size);
  cuda::Collect(rows.view(), rows.params(), cuts, order, {offsets, ids, logits, weights}, nullptr);
  lists.ids = ids.Get();
  lists.logits = logits.Get();
  lists.weights = weights.Get();
  return lists;
}

void ExpectReference(const RequestRows& rows, const std::vector<Cut>& cuts, DType dtype,
                     int64_t capacity) {
  const RequestRowsOnDevice on_device(rows, dtype);
  const OnDevice<Cut> device_cuts(cuts);
  for (const CandidateOrder order : kOrders) {
    SCOPED_TRACE(order == CandidateOrder::kById ? "by id" : "by rank");
    const Lists all = Reference({on_device.batch().view(), rows.params, rows.keys}, cuts, order);
    const OnDevice<int64_t> offsets(cuts.size() + 1);
    cuda::CandidateOffsets(device_cuts, kMaxVocab, offsets, nullptr);
    Collected(on_device, device_cuts, order, offsets).ExpectSame(all);

    cuda::CandidateOffsets(device_cuts, capacity, offsets, nullptr);
    Collected(on_device, device_cuts, order, offsets).ExpectSame(FirstOfEach(all, capacity, false));

    const Lists padded = FirstOfEach(all, capacity, true);
    const OnDevice<int64_t> fixed(padded.offsets);
    Collected(on_device, device_cuts, order, fixed).ExpectSame(padded);
  }
}

std::vector<Cut> CutsOf(const RequestRows& rows, DType dtype) {
  const Batch batch(rows.values, dtype);
  return Selected({batch.view(), rows.params, rows.keys}).cuts;
}

TEST_P(CudaCandidates, EqualTheReferenceOnRandomRowsAndParameters) {
  Random random(41);
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t vocab = 1 + static_cast<int64_t>(5999 * u * u);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    const RequestRows rows =
        RandomRequestRows(1 + random.Below(i % 8 == 0 ? 150 : 24), vocab, random);
    ExpectReference(rows, CutsOf(rows, GetParam()), GetParam(), 1 + random.Below(vocab));
  }
}

TEST_P(CudaCandidates, EqualTheReferenceOnHostileRows) {
  Random random(42);
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    const RequestRows rows = ExtremeRequestRows(hostile, random);
    ExpectReference(rows, CutsOf(rows, GetParam()), GetParam(), 5);
  }
}

TEST_P(CudaCandidates, EqualTheReferenceAtFullSize) {
  Random random(43);
  const int64_t vocab = 128256;
  RequestRows rows;
  for (const RowKind kind : kAllRowKinds) {
    for (const SelectParams& params :
         {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.7f}, SelectParams{}}) {
      rows.Add(MakeRow(kind, vocab, random), params, random);
    }
  }
  ExpectReference(rows, CutsOf(rows, GetParam()), GetParam(), 6000);
}

// Cuts of other rows keep more or fewer tokens than they say.
TEST_P(CudaCandidates, EqualTheReferenceOnAnyCut) {
  Random random(44);
  for (int i = 0; i < 150 && !HasFailure(); ++i) {
    const int64_t vocab = kBlockWidths[random.Below(std::size(kBlockWidths))];
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    RequestRows rows;
    std::vector<Cut> cuts;
    for (int r = 0; r < 9; ++r) {
      rows.Add(AnyRow(vocab, random), {.temperature = random.Coin() ? 1.0f : 0.7f}, random);
      cuts.push_back(AnyCut(rows.values.back(), random));
      if (cuts.back().status != RowStatus::kOk) cuts.back().count = 0;
    }
    ExpectReference(rows, cuts, GetParam(), 1 + random.Below(vocab));
  }
}

// What is behind the end of the outputs is nobody's, whatever the offsets say.
TEST_P(CudaCandidates, WriteNothingBehindTheOutputs) {
  Random random(45);
  RequestRows rows;
  rows.Add(MakeRow(RowKind::kMid, 3000, random), {}, random);
  rows.Add(MakeRow(RowKind::kMid, 3000, random), {}, random);
  const RequestRowsOnDevice on_device(rows, GetParam());
  const OnDevice<Cut> cuts(CutsOf(rows, GetParam()));
  const OnDevice<int64_t> offsets(std::vector<int64_t>{-5, 90, int64_t{1} << 40});
  const OnDevice<int32_t> ids(std::vector<int32_t>(200, 77));
  for (const CandidateOrder order : kOrders) {
    cuda::Collect(on_device.view(), on_device.params(), cuts, order, {offsets, {ids.data(), 100}},
                  nullptr);
    const std::vector<int32_t> got = ids.Get();
    EXPECT_TRUE(std::all_of(got.begin(), got.begin() + 100, [](int32_t id) { return id < 3000; }));
    EXPECT_TRUE(
        SameSequence(std::vector(got.begin() + 100, got.end()), std::vector<int32_t>(100, 77)));
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaCandidates, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

using CudaCandidatesBadInput = DeviceTest;

TEST_F(CudaCandidatesBadInput, NamesWhatIsWrong) {
  struct Call {
    LogitsView logits = {
        reinterpret_cast<const float*>(256), 2, 8, 8, DType::kF32, {DeviceKind::kCuda, 0}};
    cuda::RowParams params = {{reinterpret_cast<const SelectParams*>(256), 1}};
    cuda::DeviceArray<const Cut> cuts = {reinterpret_cast<const Cut*>(256), 2};
    int order = 0;
    cuda::Candidates candidates = {{reinterpret_cast<const int64_t*>(256), 3}};
  };
  auto ids = [](int64_t size) {
    return cuda::DeviceArray<int32_t>(reinterpret_cast<int32_t*>(256), size);
  };
  ExpectErrors<Call>(
      {{[](Call& c) { c.order = 2; }, "order", "2", "[0, 1]"},
       {[](Call& c) { c.cuts.size = 1; }, "cuts.size()", "1", "2"},
       {[](Call& c) { c.candidates.offsets.size = 2; }, "candidates.offsets.size()", "2", "3"},
       {[](Call& c) { c.candidates.offsets.data = nullptr; }, "candidates.offsets.data", "null",
        "a pointer to device memory"},
       {[](Call& c) { c.candidates.ids.size = 4; }, "candidates.ids.data", "null",
        "a pointer to device memory"},
       {[&](Call& c) {
          c.candidates.ids = ids(4);
          c.candidates.weights = {reinterpret_cast<uint64_t*>(256), 5};
        },
        "candidates.weights.size()", "5", "4"},
       {[](Call& c) { c.params.params.size = 3; }, "params.size()", "3",
        "1 or the number of rows, 2"}},
      [](Call& c) {
        cuda::Collect(c.logits, c.params, c.cuts, static_cast<CandidateOrder>(c.order),
                      c.candidates, nullptr);
      });
  ExpectError([] { cuda::CandidateOffsets({}, -1, {}, nullptr); }, "capacity", "-1",
              "[0, 8388608]");
  ExpectError([&] { cuda::CandidateOffsets({}, 1, {}, nullptr); }, "offsets.size()", "0", "1");
}

}  // namespace
}  // namespace sluice::test
