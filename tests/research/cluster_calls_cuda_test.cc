// Searches of clusters on a GPU as calls: sequences, graphs, what is not finite, wrong arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/research/device_search.h"
#include "tests/support/bad_input.h"

namespace sluice::test {
namespace {

using ClusterCallsCuda = DeviceSearchTest;

TEST_F(ClusterCallsCuda, TheBudgetOfASequenceFollowsItsAnswersAsTheProcessorsDoes) {
  const Rows rows = MakeHead(HeadKind::kNormal, 500, 32, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  const research::HeadClusters clusters = research::HeadClusters::Build(head, {.clusters = 50});
  const research::ClusterBudget budget = {
      .rows = 1, .first_rows = 500, .first_steps = 2, .gain = 0.1};
  const Rows states = {MakeHidden(HiddenKind::kNormal, rows, random_), std::vector<float>(32, NAN)};
  const Batch hidden(states, DType::kF32);
  const Batch first({states[0]}, DType::kF32);
  DeviceSearch device(weight, {}, clusters, budget);
  device.StartPaces(2);
  research::ClusterSearch search(head, clusters, budget);
  for (int step = 0; step < 120; ++step) {
    const std::vector<Answer> answers = device.Ask(hidden, {.k = 5});
    const research::ClusterAnswer expected = search.Search(Matrix(first), {.k = 5});
    ASSERT_EQ(answers[0].row.path, expected.path) << step;
    if (step < 8) {
      EXPECT_EQ(answers[0].row.path == research::ClusterPath::kDense, step >= 2) << step;
    }
    EXPECT_EQ(device.paces()[0].rows, search.budget_rows()) << step;
    EXPECT_EQ(device.paces()[1].steps, 0);  // it was no question
  }
  EXPECT_GT(search.budget_rows(), 100.0);
}

TEST_F(ClusterCallsCuda, AGraphAnswersTheStatesThatAreThereWhenItIsReplayed) {
  const Rows rows = InClusters(3000, 48, 40, 0.003, random_);
  const Batch weight(rows, DType::kBf16);
  const DenseHead head = {Matrix(weight), {}};
  DeviceSearch device(weight, {}, research::HeadClusters::Build(head, {.clusters = 80}));
  constexpr size_t kRows = 3;
  constexpr int32_t kTop = 20;
  device.Prepare(Batch(Peaked(rows, kRows, 1.0f), DType::kF32, 0));
  const OnDevice<int32_t> ids(kRows * kTop);
  const OnDevice<float> logits(kRows * kTop);
  const OnDevice<research::ClusterRow> of_rows(kRows);
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  Require(cudaStreamCreate(&stream));
  Require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  research::SearchClusters(device.call(), {.k = kTop}, {ids, logits, of_rows}, stream);
  Require(cudaStreamEndCapture(stream, &graph));
  Require(cudaGraphInstantiate(&executable, graph, 0));
  for (int replay = 0; replay < 5; ++replay) {
    const Rows states = Peaked(rows, kRows, replay == 3 ? 0.01f : 1.0f);
    std::vector<float> flat;
    for (const auto& state : states) flat.insert(flat.end(), state.begin(), state.end());
    Require(cudaMemcpy(const_cast<void*>(device.call().hidden.data), flat.data(),
                       flat.size() * sizeof(float), cudaMemcpyHostToDevice));
    Require(cudaGraphLaunch(executable, stream));
    Require(cudaStreamSynchronize(stream));
    const Rows expected = DenseLogits(head, {Matrix(Batch(states, DType::kF32)), {}});
    const std::vector<int32_t> all_ids = ids.Get();
    const std::vector<float> all_logits = logits.Get();
    for (size_t r = 0; r < kRows; ++r) {
      const auto at = static_cast<ptrdiff_t>(r * kTop);
      const Answer answer = {{all_ids.begin() + at, all_ids.begin() + at + kTop},
                             {all_logits.begin() + at, all_logits.begin() + at + kTop},
                             {}};
      EXPECT_TRUE(IsFirst(answer, expected[r], kTop)) << replay << " row " << r;
    }
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(ClusterCallsCuda, WhatIsNotFiniteHasNoAnswerAndTouchesNoOtherRow) {
  const Rows rows = MakeHead(HeadKind::kNormal, 300, 20, random_);
  const Batch weight(rows, DType::kF32);
  const DenseHead head = {Matrix(weight), {}};
  Rows states = Peaked(rows, 5, 1.0f);
  states[1][19] = NAN;
  states[2][0] = -INFINITY;
  states[3].assign(20, 3e38f);
  const Batch hidden(states, DType::kF32);
  const Rows logits = DenseLogits(head, {Matrix(hidden), {}});
  DeviceSearch device(weight, {}, research::HeadClusters::Build(head, {.clusters = 30}));
  for (const Certificate certificate :
       {Certificate::kTopK, Certificate::kSoftmax, Certificate::kTopP}) {
    const std::vector<Answer> answers = device.Ask(hidden, {.certificate = certificate, .k = 7});
    for (const size_t r : {1, 2}) {
      EXPECT_EQ(answers[r].row.count, 0);
      EXPECT_EQ(answers[r].row.path, research::ClusterPath::kDense);
      EXPECT_EQ(answers[r].row.reason, research::ClusterReason::kHidden);
    }
    for (const size_t r : {0, 4}) {
      EXPECT_EQ(answers[r].row.reason == research::ClusterReason::kNone,
                answers[r].row.path != research::ClusterPath::kDense);
      EXPECT_GT(answers[r].row.count, 0);
      if (certificate == Certificate::kTopK) {
        EXPECT_TRUE(IsFirst(answers[r], logits[r], 7));
      }
    }
  }
  // One weight of 1e30.
  const Rows huge = MakeHead(HeadKind::kOneHuge, 100, 8, random_);
  const Batch huge_weight(huge, DType::kF32);
  const DenseHead huge_head = {Matrix(huge_weight), {}};
  DeviceSearch overflow(huge_weight, {}, research::HeadClusters::Build(huge_head, {.clusters = 5}));
  const Batch large({std::vector<float>(8, 1e15f)}, DType::kF32);
  const Answer answer = overflow.Ask(large, {.k = 50})[0];
  EXPECT_EQ(answer.row.count, 0);
  EXPECT_EQ(answer.row.path, research::ClusterPath::kDense);
  EXPECT_EQ(answer.row.reason, research::ClusterReason::kLogit);
}

// What follows needs no device: nothing is launched, so the pointers are never followed.

struct Call {
  template <typename T>
  static T* Some() {
    return reinterpret_cast<T*>(256);
  }
  static MatrixView Matrix(int64_t rows, DType dtype) {
    return {Some<float>(), rows, 16, 16, dtype, {DeviceKind::kCuda, 0}};
  }

  research::ClusterCall call = {
      .head = {Matrix(100, DType::kBf16), {}},
      .clusters =
          {research::ClusterMetric::kEuclidean, false, 100, 16, 7, 7, {Some<std::byte>(), 1 << 20}},
      .hidden = Matrix(2, DType::kF32),
      .workspace = {Some<std::byte>(), 1 << 20}};
  research::ClusterQuestion question = {.k = 5};
  research::ClusterPlaces places = {
      {Some<int32_t>(), 10}, {Some<float>(), 10}, {Some<research::ClusterRow>(), 2}};
};

TEST(ClusterCallsCudaArguments, AreNamedWhereTheyAreWrong) {
  const std::vector<BadCase<Call>> cases = {
      {[](Call& c) { c.call.clusters.vocab = 99; }, "clusters.vocab", "99", "100"},
      {[](Call& c) { c.call.clusters.dim = 17; }, "clusters.dim", "17", "16"},
      {[](Call& c) { c.call.clusters.clusters = 0; }, "clusters.clusters", "0", "[1, 100]"},
      {[](Call& c) { c.call.clusters.centroids = 8; }, "clusters.centroids", "8", "[1, 7]"},
      {[](Call& c) { c.call.clusters.memory.size = 100; }, "clusters.memory.size", "100",
       "[1232, 9223372036854775807]"},
      {[](Call& c) { c.call.clusters.memory.data = nullptr; }, "clusters.memory.data", "null",
       "a pointer to device memory, aligned to 256"},
      {[](Call& c) { c.call.hidden.columns = 15; }, "hidden.dim", "15", "16"},
      {[](Call& c) { c.call.hidden.rows = 1025; }, "hidden.rows", "1025", "[0, 1024]"},
      {[](Call& c) { c.call.workspace.data += 16; }, "workspace.data", "an address",
       "a pointer to device memory, aligned to 256"},
      {[](Call& c) { c.call.paces = {Call::Some<research::ClusterPace>(), 3}; }, "paces.size()",
       "3", "2"},
      {[](Call& c) { c.question.k = 0; }, "question.k", "0", "[1, 100]"},
      {[](Call& c) { c.question.k = 101; }, "question.k", "101", "[1, 100]"},
      {[](Call& c) { c.question = {.certificate = Certificate::kSoftmax, .epsilon = 1.0}; },
       "question.epsilon", "1", "between 0 and 1"},
      {[](Call& c) { c.question = {.certificate = Certificate::kTopP, .p = 0.0}; }, "question.p",
       "0", "between 0 and 1"},
      {[](Call& c) { c.question = {.certificate = Certificate::kTopP, .temperature = 0.0}; },
       "question.temperature", "0", "above 0, finite"},
      {[](Call& c) { c.places.ids.size = 9; }, "ids.size()", "9", "10"},
      {[](Call& c) { c.question = {.certificate = Certificate::kTopP}; }, "ids.size()", "10",
       "200"},
      {[](Call& c) { c.places.logits.size = 11; }, "logits.size()", "11", "10"},
      {[](Call& c) { c.places.rows.size = 1; }, "rows.size()", "1", "2"},
  };
  for (const auto& bad : cases) {
    Call call;
    EXPECT_NO_THROW(research::ArgumentOf(call.call, call.question, call.places));
    bad.spoil(call);
    ExpectError([&] { research::ArgumentOf(call.call, call.question, call.places); }, bad.parameter,
                bad.value, bad.allowed, bad.code);
  }
  Call call;
  const auto bytes = static_cast<int64_t>(
      research::ClusterWorkspaceBytes(call.call.clusters, call.call.hidden.rows));
  call.call.workspace.size = bytes;
  EXPECT_NO_THROW(research::ArgumentOf(call.call, call.question, call.places));
  call.call.workspace.size = bytes - 1;
  ExpectError([&] { research::ArgumentOf(call.call, call.question, call.places); },
              "workspace.size", ToText(bytes - 1), RangeText(bytes, INT64_MAX));
  ExpectError([&] { research::ClusterWorkspaceBytes(call.call.clusters, 1025); }, "rows", "1025",
              "[0, 1024]");
}

TEST(ClusterCallsCudaArguments, PartsOfTheWorkspaceLieApart) {
  const research::DeviceClusters clusters = Call().call.clusters;
  size_t bytes = 0;
  auto* const first = Call::Some<std::byte>();
  for (const int64_t rows : {1, 3}) {
    const research::ClusterMemory memory = research::LayOut(clusters, rows, first, &bytes);
    const std::byte* const ends[] = {
        reinterpret_cast<const std::byte*>(memory.progress + rows),
        reinterpret_cast<const std::byte*>(memory.states + rows * memory.state_stride),
        reinterpret_cast<const std::byte*>(memory.bounds + rows * 7),
        reinterpret_cast<const std::byte*>(memory.list + rows * 7),
        reinterpret_cast<const std::byte*>(memory.sorted + rows * 7),
        reinterpret_cast<const std::byte*>(memory.starts + rows * 8),
        reinterpret_cast<const std::byte*>(memory.ids + rows * 100),
        reinterpret_cast<const std::byte*>(memory.logits + rows * 100),
        reinterpret_cast<const std::byte*>(memory.logit_of + rows * 100),
        reinterpret_cast<const std::byte*>(memory.room + rows * memory.room_stride)};
    const void* const starts[] = {memory.states, memory.bounds, memory.list,   memory.sorted,
                                  memory.starts, memory.ids,    memory.logits, memory.logit_of,
                                  memory.room,   first + bytes};
    EXPECT_GE(memory.room_stride, 100);
    for (size_t i = 0; i < std::size(ends); ++i) {
      EXPECT_LE(ends[i], static_cast<const std::byte*>(starts[i])) << i;
    }
    EXPECT_EQ(bytes, research::ClusterWorkspaceBytes(clusters, rows));
  }
}

}  // namespace
}  // namespace sluice::test
