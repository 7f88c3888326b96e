// What callers may rely on about how it runs: a row's answer depends on its own values, parameters
// and key alone, not on neighbours, threads, memory layout or floating-point mode.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <limits>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tests/select/everything.h"
#include "tests/support/backends.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

class SelectExecution : public BackendTest {};

// Each row with its own parameters and key, cut out of the batch: nothing may leak between rows.
TEST_P(SelectExecution, BatchGivesWhatItsRowsGiveAlone) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Mixed mixed = MixedRows(seed);
    const Batch batch(mixed.rows, dtype());
    const Everything together = Everythings({batch.view(), mixed.params, mixed.keys}, backend());
    for (size_t r = 0; r < mixed.rows.size(); ++r) {
      const Everything alone = Everythings(
          {batch.row(static_cast<int64_t>(r)), {&mixed.params[r], 1}, {&mixed.keys[r], 1}},
          backend());
      EXPECT_TRUE(SameBits(together.selection.cuts[r], alone.selection.cuts[0]));
      EXPECT_EQ(together.selection.masses[r], alone.selection.masses[0]);
      EXPECT_TRUE(SameSequence(together.kept[r], alone.kept[0]));
      EXPECT_TRUE(SameBits(together.tokens[r], alone.tokens[0])) << "seed " << seed << " row " << r;
    }
  }
}

// One SelectParams and one NoiseKey for all rows mean the same as a copy for each.
TEST_P(SelectExecution, OneParameterSetServesAllRows) {
  const Mixed mixed = MixedRows(2);
  const Batch batch(mixed.rows, dtype());
  for (const SelectParams& params : ExtremeSelectParams()) {
    const NoiseKey key{7, 8, 9};
    const std::vector<SelectParams> many(mixed.rows.size(), params);
    const std::vector<NoiseKey> keys(mixed.rows.size(), key);
    ExpectSame(Everythings({batch.view(), {&params, 1}, {&key, 1}}, backend()),
               Everythings({batch.view(), many, keys}, backend()));
  }
}

// Rows in trouble of every kind between sound ones: the sound ones answer as if alone, the others
// give no token and keep nothing.
TEST_P(SelectExecution, RowsWithAStatusTouchNoNeighbour) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Random random(3);
  const std::vector<float> good = MakeRow(RowKind::kMid, 67, random);
  std::vector<float> nan = good;
  nan[66] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> pos_inf = good;
  pos_inf[0] = kInf;
  const std::vector<float> masked(67, -kInf);
  const SelectParams sound{.top_k = 20, .top_p = 0.9f};
  const SelectParams bad{.top_p = 1.5f};
  const Batch batch({good, nan, good, pos_inf, good, masked, good, good, good}, dtype());
  const std::vector<SelectParams> params = {sound, sound, sound, sound, sound,
                                            sound, sound, bad,   sound};
  const NoiseKey key{5, 6, 0};
  const Everything together = Everythings({batch.view(), params, {&key, 1}}, backend());
  const Everything alone = Everythings({batch.row(0), {&sound, 1}, {&key, 1}}, backend());
  const RowStatus expected[] = {
      RowStatus::kOk,          RowStatus::kNanInput, RowStatus::kOk,
      RowStatus::kPosInfInput, RowStatus::kOk,       RowStatus::kEmptySupport,
      RowStatus::kOk,          RowStatus::kBadParam, RowStatus::kOk};
  for (size_t r = 0; r < std::size(expected); ++r) {
    SCOPED_TRACE(testing::Message() << "row " << r);
    if (expected[r] == RowStatus::kOk) {
      EXPECT_TRUE(SameBits(together.selection.cuts[r], alone.selection.cuts[0]));
      EXPECT_EQ(together.selection.masses[r], alone.selection.masses[0]);
      EXPECT_TRUE(SameBits(together.tokens[r], alone.tokens[0]));
      EXPECT_TRUE(SameSequence(together.kept[r], alone.kept[0]));
      continue;
    }
    Cut cut;
    cut.status = expected[r];
    EXPECT_TRUE(SameBits(together.selection.cuts[r], cut));
    EXPECT_EQ(together.selection.masses[r], CutMass{});
    EXPECT_EQ(together.tokens[r].id, -1);
    EXPECT_EQ(together.tokens[r].status, expected[r]);
    EXPECT_TRUE(together.kept[r].empty());
  }
}

#if defined(__x86_64__)
constexpr unsigned kControlBits = 0xffc0;  // without the sticky exception flags
constexpr unsigned kHostileControls[] = {
    0x1f80 | 0x8040,           // flush to zero and denormals are zero
    0x1f80 | 0x2000,           // round down
    0x1f80 | 0x4000,           // round up
    0x1f80 | 0x6000 | 0x8040,  // round to zero, and both of the former
};

// An engine's thread may run with denormals off or another rounding; the denormal rows and the
// nearly tied ones would answer otherwise.
TEST_P(SelectExecution, CallersFloatingPointModeChangesNothingAndIsRestored) {
  const unsigned saved = _mm_getcsr();
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Mixed mixed = MixedRows(seed);
    const Batch batch(mixed.rows, dtype());
    const SelectInput input{batch.view(), mixed.params, mixed.keys};
    const Everything expected = Everythings(input, backend());
    for (const unsigned control : kHostileControls) {
      _mm_setcsr(control);
      const Everything actual = Everythings(input, backend());
      const unsigned after = _mm_getcsr();
      _mm_setcsr(saved);
      EXPECT_EQ(after & kControlBits, control & kControlBits);
      ExpectSame(actual, expected);
    }
  }
}
#endif

// A parallel-for as a server has one: its own threads, rows in any order. On x86 each worker comes
// with another floating-point mode, and must leave with it.
struct Pool {
  static void Run(void* context, int64_t count, ParallelFor::Task task, void* state) {
    Pool& pool = *static_cast<Pool*>(context);
    std::atomic<int64_t> next{0};
    std::vector<std::thread> threads;
    threads.reserve(kWorkers);
    for (int worker = 0; worker < kWorkers; ++worker) {
      threads.emplace_back([&, worker] {
#if defined(__x86_64__)
        const unsigned control = kHostileControls[static_cast<size_t>(worker) % 4];
        _mm_setcsr(control);
#endif
        for (int64_t i = next++; i < count; i = next++) {
          task(state, count - 1 - i, worker);  // last row first
          ++pool.tasks;
        }
#if defined(__x86_64__)
        if ((_mm_getcsr() & kControlBits) != (control & kControlBits)) ++pool.modes_changed;
#endif
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  ParallelFor parallel() { return {kWorkers, this, Run}; }

  static constexpr int kWorkers = 5;
  std::atomic<int64_t> tasks{0};
  std::atomic<int> modes_changed{0};
};

TEST_P(SelectExecution, ParallelRowsGiveWhatSerialOnesGive) {
  const Mixed mixed = MixedRows(6);
  Batch batch(mixed.rows, dtype());
  Batch masked(mixed.rows, dtype());
  const SelectInput input{batch.view(), mixed.params, mixed.keys};
  const size_t rows = mixed.rows.size();
  const Selection expected = Selected(input, backend());
  const Lists lists = Collected(input, expected.cuts, CandidateOrder::kByRank, backend());

  Pool pool;
  const ParallelFor parallel = pool.parallel();
  const Workspace workspace(SelectWorkspaceBytes(batch.view(), {backend(), parallel}));
  const Execution execution{backend(), parallel, workspace.span()};
  std::vector<Cut> cuts(rows);
  std::vector<CutMass> masses(rows);
  Select(input, cuts, masses, execution);
  EXPECT_TRUE(SameSequence(cuts, expected.cuts));
  EXPECT_TRUE(SameSequence(masses, expected.masses));

  std::vector<TokenResult> tokens(rows);
  Sample(input, DrawMethod::kGumbel, tokens, execution);
  EXPECT_TRUE(SameSequence(tokens, Sampled(input, DrawMethod::kGumbel, backend())));

  const Lists parallel_lists = Collected(input, cuts, CandidateOrder::kByRank, backend(), parallel);
  EXPECT_TRUE(SameSequence(parallel_lists.ids, lists.ids));
  EXPECT_TRUE(SameSequence(parallel_lists.weights, lists.weights));

  std::vector<int32_t> bits(rows * 3);
  std::vector<int32_t> serial_bits(rows * 3);
  KeptBitmask(batch.view(), cuts, bits, execution);
  KeptBitmask(batch.view(), cuts, serial_bits, {backend()});
  EXPECT_TRUE(SameSequence(bits, serial_bits));

  Mask(masked.mutable_view(), cuts, execution);
  Mask(batch.mutable_view(), cuts, {backend()});
  for (size_t r = 0; r < rows; ++r) {
    const size_t bytes = 67 * SizeOf(dtype());
    const int64_t row = static_cast<int64_t>(r);
    EXPECT_EQ(std::memcmp(masked.view().Row(row), batch.view().Row(row), bytes), 0) << "row " << r;
  }
  EXPECT_GE(pool.tasks, static_cast<int64_t>(rows));  // it was the pool that ran
  EXPECT_EQ(pool.modes_changed, 0);
}

// The same values at every distance between rows and every alignment that the element size allows.
TEST_P(SelectExecution, StrideAndAlignmentChangeNothing) {
  const Mixed mixed = MixedRows(7);
  const Batch tight(mixed.rows, dtype(), 0);
  const Everything expected = Everythings({tight.view(), mixed.params, mixed.keys}, backend());
  for (const int64_t padding : {1, 2, 5, 13, 64, 100}) {
    const Batch batch(mixed.rows, dtype(), padding);
    ExpectSame(Everythings({batch.view(), mixed.params, mixed.keys}, backend()), expected);
  }
  const size_t bytes = mixed.rows.size() * 67 * SizeOf(dtype());
  for (size_t offset = 0; offset < 64; offset += SizeOf(dtype())) {
    std::vector<std::byte> memory(bytes + 128);
    const size_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % 64;
    std::byte* data = memory.data() + (64 - misaligned) + offset;
    std::memcpy(data, tight.view().data, bytes);
    LogitsView view = tight.view();
    view.data = data;
    ExpectSame(Everythings({view, mixed.params, mixed.keys}, backend()), expected);
  }
}

SLUICE_FOR_EACH_BACKEND(SelectExecution);

constexpr const char* kAlgorithmNames = "auto, certified, quickselect, pivot";

TEST(SelectAlgorithmNames, LeadToTheAlgorithmAndBack) {
  for (const AlgorithmInfo& info : SelectAlgorithms()) {
    EXPECT_EQ(SelectAlgorithmByName(info.name), info.algorithm);
    EXPECT_EQ(&info - SelectAlgorithms().data(), static_cast<int>(info.algorithm));
    EXPECT_FALSE(info.when_to_use.empty());
  }
  ExpectError([] { SelectAlgorithmByName("radix"); }, "algorithm", "\"radix\"", kAlgorithmNames);
}

TEST(SelectAlgorithmNames, OutOfRangeAndWorkOfAnotherSizeAreErrors) {
  const float row[] = {1.0f, 2.0f, 0.0f};
  const LogitsView logits{row, 1, 3, 3};
  const SelectParams params;
  const NoiseKey key;
  const SelectInput input{logits, {&params, 1}, {&key, 1}};
  const Workspace workspace(SelectWorkspaceBytes(logits, {}));
  Cut cut;
  TokenResult result;
  std::vector<SelectWork> work(2);
  const Execution unknown{.workspace = workspace.span(),
                          .algorithm = static_cast<SelectAlgorithm>(4)};
  const Execution too_many{.workspace = workspace.span(), .work = work};
  auto select = [&](const Execution& execution) { Select(input, {&cut, 1}, {}, execution); };
  auto sample = [&](const Execution& execution) {
    Sample(input, DrawMethod::kGumbel, {&result, 1}, execution);
  };
  ExpectError([&] { select(unknown); }, "execution.algorithm", "4", kAlgorithmNames);
  ExpectError([&] { sample(unknown); }, "execution.algorithm", "4", kAlgorithmNames);
  ExpectError([&] { select(too_many); }, "execution.work.size()", "2", "1");
  ExpectError([&] { sample(too_many); }, "execution.work.size()", "2", "1");
}

}  // namespace
}  // namespace sluice::test
