// A certified head on a GPU beside the dense head and the reference's scores. For .cu files.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "head/certified/cuda/certified_kernels.h"
#include "tests/head/certified_draws.h"
#include "tests/head/device_head.h"

namespace sluice::test {

class HeadOnDevice : public DeviceTest {
 protected:
  static void ExpectTopOfDense(DeviceHead& device, const DenseHead& head, const Batch& hidden,
                               const std::vector<int32_t>& bitmask, int32_t k,
                               const std::string& what) {
    device.Ask(hidden, bitmask);
    const TopResult actual = device.TopK(k);
    const TopResult expected = DenseTopK(head, {Matrix(hidden), bitmask}, k);
    ASSERT_EQ(actual.status, expected.status) << what;
    ASSERT_TRUE(SameSequence(actual.ids, expected.ids)) << what;
    ASSERT_TRUE(SameSequence(actual.logits, expected.logits)) << what;
  }

  static void ExpectDrawOfDense(DeviceHead& device, const DenseHead& head, const Batch& hidden,
                                const std::vector<int32_t>& bitmask,
                                const std::vector<SelectParams>& params,
                                const std::vector<NoiseKey>& keys, DrawMethod method,
                                const std::string& what) {
    device.Ask(hidden, bitmask);
    const std::vector<int32_t> actual = device.Sample(params, keys, method);
    const std::vector<TokenResult> results =
        DenseSample(head, {Matrix(hidden), bitmask}, params, keys, method);
    std::vector<int32_t> expected;
    for (const TokenResult& result : results) expected.push_back(result.id);
    for (const TokenResult& result : results) {
      expected.push_back(static_cast<int32_t>(result.status));
    }
    ASSERT_TRUE(SameSequence(actual, expected)) << what;
  }
};

// Scores and widths of hidden states, from the device's own encoding of them. before(): enqueues
// what comes directly before the call.
template <typename Before = void (*)()>
std::vector<ScoredRow> ScoredOnDevice(
    DeviceHead& device, const Batch& hidden, Before before = [] {}) {
  device.Ask(hidden, {});
  cuda::QuestionArgument question = {};
  question.k = 1;
  const cuda::CertifiedArgs call = cuda::ArgumentOf(device.call(), question);
  before();
  cuda::LaunchEncode(call, nullptr);
  cuda::LaunchScore(call, nullptr);
  Require(cudaDeviceSynchronize());
  const auto width = static_cast<size_t>(call.planes.tiles) * kTileRows;
  std::vector<ScoredRow> rows;
  for (int64_t r = 0; r < call.memory.rows; ++r) {
    ScoredRow row{std::vector<float>(width), std::vector<float>(width)};
    auto get = [&](const float* from, std::vector<float>& to) {
      Require(cudaMemcpy(to.data(), from + r * static_cast<int64_t>(width), width * sizeof(float),
                         cudaMemcpyDeviceToHost));
    };
    get(call.memory.scores, row.scores);
    get(call.memory.widths, row.widths);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace sluice::test
