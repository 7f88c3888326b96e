// Every way to select on a GPU gives the Cuts of the reference, whatever a table of guesses holds.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "sluice/research/qrita.hpp"
#include "tests/support/bad_input.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

using research::QritaVariant;
using research::TruncationTable;

class CudaQrita : public DeviceTest, public ::testing::WithParamInterface<DType> {};

std::vector<Cut> CutsBy(QritaVariant variant, const RequestRowsOnDevice& rows,
                        const cuda::DeviceArray<TruncationTable>& table = {}) {
  const size_t bytes = research::QritaWorkspaceBytes(rows.view(), variant);
  const OnDevice<std::byte> workspace(bytes);
  const OnDevice<Cut> cuts(static_cast<size_t>(rows.view().rows));
  research::SelectByQrita(rows.view(), rows.params(), {variant, workspace, table}, cuts, nullptr);
  return cuts.Get();
}

std::vector<Cut> Expected(const RequestRows& rows, const RequestRowsOnDevice& on_device) {
  return Selected({on_device.batch().view(), rows.params, rows.keys}).cuts;
}

void ExpectReference(const RequestRows& rows, DType dtype) {
  const RequestRowsOnDevice on_device(rows, dtype);
  const std::vector<Cut> expected = Expected(rows, on_device);
  for (const research::QritaEntry& info : research::QritaVariants()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(SameSequence(CutsBy(info.variant, on_device), expected));
  }
}

TEST_P(CudaQrita, EqualsTheReferenceOnRandomRowsAndParameters) {
  Random random(61);
  for (int i = 0; i < 40 && !HasFailure(); ++i) {
    const double u = random.Uniform();
    const int64_t vocab = 1 + static_cast<int64_t>(7999 * u * u);
    SCOPED_TRACE(testing::Message() << "batch " << i << " of vocab " << vocab);
    ExpectReference(RandomRequestRows(1 + random.Below(i % 8 == 0 ? 150 : 24), vocab, random),
                    GetParam());
  }
}

TEST_P(CudaQrita, EqualsTheReferenceOnHostileRows) {
  Random random(62);
  for (const HostileRow& hostile : HostileRows()) {
    SCOPED_TRACE(hostile.name);
    ExpectReference(ExtremeRequestRows(hostile, random), GetParam());
  }
}

RequestRows FullSizeRows(Random& random) {
  RequestRows rows;
  for (const RowKind kind : kAllRowKinds) {
    for (const SelectParams& params :
         {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.7f},
          SelectParams{.top_k = 500}, SelectParams{.top_p = 0.95f, .profile = ProfileByName("hf")},
          SelectParams{.top_k = 40, .top_p = 0.9f, .profile = ProfileByName("sglang")}}) {
      rows.Add(MakeRow(kind, 128256, random), params, random);
    }
  }
  return rows;
}

TEST_P(CudaQrita, EqualsTheReferenceAtFullSize) {
  Random random(63);
  ExpectReference(FullSizeRows(random), GetParam());
}

TEST_P(CudaQrita, EqualsTheReferenceWithAnyTable) {
  Random random(64);
  RequestRows rows = FullSizeRows(random);
  for (RowKind kind : {RowKind::kPeaked, RowKind::kMid}) {  // the same entry for many rows
    for (int r = 0; r < 20; ++r) {
      rows.Add(MakeRow(kind, 128256, random), {.top_p = 0.9f}, random);
    }
  }
  const RequestRowsOnDevice on_device(rows, GetParam());
  const std::vector<Cut> expected = Expected(rows, on_device);
  const size_t tried = rows.size();  // every row has top-k or top-p
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float content : {0.0f, -0.0f, 3.5f, -8.0f, 64.0f, 1e30f, -1e30f, infinity, -infinity,
                              std::numeric_limits<float>::quiet_NaN()}) {
    SCOPED_TRACE(content);
    TruncationTable table;
    for (auto& row : table.sigma) std::fill(std::begin(row), std::end(row), content);
    table.hits = ~uint64_t{0};
    const OnDevice<TruncationTable> learned(std::vector<TruncationTable>{table});
    for (const QritaVariant variant : {QritaVariant::kQuaternary, QritaVariant::kOneTile}) {
      for (int call = 0; call < 3; ++call) {
        EXPECT_TRUE(SameSequence(CutsBy(variant, on_device, learned), expected));
      }
    }
    const TruncationTable after = learned.Get()[0];
    EXPECT_EQ(after.hits + 1 + after.fallbacks, tried * 6);  // hits began one before 0
  }
}

// A certificate that never holds costs time and no more, so somebody has to count.
TEST_P(CudaQrita, DecidesAModelsRowsByTruncation) {
  Random random(67);
  for (const SelectParams& params :
       {SelectParams{.top_k = 50, .top_p = 0.9f}, SelectParams{.top_p = 0.5f}}) {
    RequestRows rows;
    for (int r = 0; r < 64; ++r) {
      rows.Add(MakeRow(r % 2 == 0 ? RowKind::kPeaked : RowKind::kMid, 128256, random), params,
               random);
    }
    const RequestRowsOnDevice on_device(rows, GetParam());
    const OnDevice<TruncationTable> table(std::vector<TruncationTable>{{}});
    for (const QritaVariant variant : {QritaVariant::kQuaternary, QritaVariant::kSortFinish}) {
      CutsBy(variant, on_device, table);
    }
    EXPECT_GE(table.Get()[0].hits, 2 * rows.size() * 9 / 10);
  }
}

// Rows whose Gaussian says nothing about their nucleus: a table that knows them finds it.
TEST_P(CudaQrita, LearnsWhereTheNucleusEnds) {
  Random random(65);
  RequestRows rows;
  for (int r = 0; r < 64; ++r) {
    std::vector<float> row = MakeRow(RowKind::kMid, 32000, random);
    for (size_t i = 0; i < row.size(); i += 2) row[i] -= 30.0f;
    rows.Add(std::move(row), {.top_p = 0.9f}, random);
  }
  const RequestRowsOnDevice on_device(rows, GetParam());
  const OnDevice<TruncationTable> table(std::vector<TruncationTable>{{}});
  std::vector<uint64_t> hits;  // through each call
  for (size_t call = 0; call < 8; ++call) {
    CutsBy(QritaVariant::kQuaternary, on_device, table);
    const TruncationTable now = table.Get()[0];
    EXPECT_EQ(now.hits + now.fallbacks, rows.size() * (call + 1));
    hits.push_back(now.hits);
  }
  EXPECT_EQ(hits.front(), 0u);
  EXPECT_GE(hits[7] - hits[6], rows.size() * 9 / 10);
}

TEST_P(CudaQrita, IsCapturedWithItsTable) {
  Random random(66);
  RequestRows rows;
  for (int r = 0; r < 4; ++r) {
    rows.Add(MakeRow(RowKind::kMid, 9000, random), {.top_p = 0.9f}, random);
  }
  const RequestRowsOnDevice on_device(rows, GetParam());
  const std::vector<Cut> expected = Expected(rows, on_device);
  for (const research::QritaEntry& info : research::QritaVariants()) {
    SCOPED_TRACE(info.name);
    const OnDevice<std::byte> workspace(
        research::QritaWorkspaceBytes(on_device.view(), info.variant));
    const OnDevice<TruncationTable> table(std::vector<TruncationTable>{{}});
    const OnDevice<Cut> cuts(rows.size());
    cudaStream_t stream;
    Require(cudaStreamCreate(&stream));
    Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    research::SelectByQrita(on_device.view(), on_device.params(), {info.variant, workspace, table},
                            cuts, stream);
    cudaGraph_t graph;
    Require(cudaStreamEndCapture(stream, &graph));
    cudaGraphExec_t executable;
    Require(cudaGraphInstantiate(&executable, graph, 0));
    for (int replay = 0; replay < 3; ++replay) {
      Require(cudaGraphLaunch(executable, stream));
      Require(cudaStreamSynchronize(stream));
      EXPECT_TRUE(SameSequence(cuts.Get(), expected));
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaQrita, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

using CudaAlgorithms = DeviceTest;

TEST_F(CudaAlgorithms, HaveNames) {
  for (const research::QritaEntry& info : research::QritaVariants()) {
    EXPECT_EQ(research::QritaVariantByName(info.name), info.variant);
    EXPECT_FALSE(info.when_to_use.empty());
  }
  ExpectError([] { research::QritaVariantByName("ternary"); }, "variant", "\"ternary\"",
              "auto, quaternary, binary, sort_finish, sort, no_truncation, force_fallback, no_dup, "
              "one_tile");
}

TEST_F(CudaAlgorithms, TakeLittleMemory) {
  for (const int64_t rows : {1, 8, 128, 512, 4096}) {
    for (const int64_t vocab : {32000, 128256, 262208}) {
      for (const DType dtype : kAllDTypes) {
        const LogitsView view{nullptr, 0, vocab, vocab, dtype, {DeviceKind::kCuda, 0}};
        LogitsView of_rows = view;
        of_rows.rows = rows;
        of_rows.data = reinterpret_cast<const void*>(256);
        const size_t bytes = research::QritaWorkspaceBytes(of_rows, QritaVariant::kQuaternary);
        const size_t logits = static_cast<size_t>(rows * vocab) * SizeOf(dtype);
        EXPECT_LE(bytes, std::max(logits / 100, size_t{256} * 1024));
        EXPECT_EQ(research::QritaWorkspaceBytes(of_rows, QritaVariant::kNoTruncation), 0u);
      }
    }
  }
}

TEST_F(CudaAlgorithms, NameWhatIsWrong) {
  struct Call {
    LogitsView logits = {
        reinterpret_cast<const float*>(256), 0, 80, 80, DType::kF32, {DeviceKind::kCuda, 0}};
    cuda::RowParams params = {{reinterpret_cast<const SelectParams*>(256), 1}};
    research::QritaOptions options = {QritaVariant::kQuaternary,
                                      {reinterpret_cast<std::byte*>(256), 1 << 20}};
    cuda::DeviceArray<Cut> cuts = {reinterpret_cast<Cut*>(256), 0};
  };
  auto bytes =
      std::to_string(research::QritaWorkspaceBytes(Call().logits, QritaVariant::kQuaternary));
  ExpectErrors<Call>(
      {{[](Call& c) { c.options.variant = static_cast<QritaVariant>(9); }, "options.variant", "9",
        "auto, quaternary, binary, sort_finish, sort, no_truncation, force_fallback, no_dup, "
        "one_tile"},
       {[](Call& c) { c.options.workspace.size = 8; }, "options.workspace.size", "8",
        "at least " + bytes + " bytes"},
       {[](Call& c) { c.options.workspace.data = nullptr; }, "options.workspace.data", "null",
        "a pointer to device memory"},
       {[](Call& c) { c.options.workspace.data += 8; }, "options.workspace.data",
        "a misaligned pointer", "a multiple of 16"},
       {[](Call& c) { c.options.table.size = 2; }, "options.table.size()", "2", "1"},
       {[](Call& c) { c.cuts.size = 1; }, "cuts.size()", "1", "0"}},
      [](Call& c) { research::SelectByQrita(c.logits, c.params, c.options, c.cuts, nullptr); });
}

}  // namespace
}  // namespace sluice::test
