// The dense head on a GPU: the bits of the reference.
#include <gtest/gtest.h>

#include <cmath>

#include "sluice/error.hpp"
#include "tests/head/device_head.h"

namespace sluice::test {
namespace {

constexpr int64_t kDims[] = {1, 2, 127, 128, 129, 255, 256, 640, 1000};

class ProjectCuda : public DeviceTest, public ::testing::WithParamInterface<DType> {};

Rows RandomRows(int64_t rows, int64_t dim, Random& random) {
  Rows values(static_cast<size_t>(rows));
  for (auto& row : values) {
    for (int64_t i = 0; i < dim; ++i) row.push_back(static_cast<float>(random.Normal()));
  }
  return values;
}

// Any NaN equals any other: the definition does not say which.
void ExpectSame(const Rows& actual, const Rows& expected, const testing::Message& what) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t r = 0; r < expected.size(); ++r) {
    for (size_t v = 0; v < expected[r].size(); ++v) {
      const float x = actual[r][v], y = expected[r][v];
      ASSERT_TRUE((x != x && y != y) || SameBits(x, y))
          << what << ", row " << r << " token " << v << ": " << x << ", not " << y;
    }
  }
}

TEST_P(ProjectCuda, GivesTheBitsOfTheReference) {
  Random random(1);
  for (const int64_t dim : kDims) {
    for (const DType hidden_dtype : kAllDTypes) {
      for (const int64_t rows : {1, 3, 8, 19}) {
        const int64_t vocab = random.Between(1, 40);
        const Batch weight(RandomRows(vocab, dim, random), GetParam(), random.Below(5));
        const Batch hidden(RandomRows(rows, dim, random), hidden_dtype, random.Below(5));
        const std::vector<float> bias = MakeBias(vocab, random);
        const RowStartAt start = random.Coin() ? RowStartAt::kAligned : RowStartAt::kOneElementOn;
        const DeviceMatrix on_device(weight, start);
        const DeviceMatrix states(hidden, start);
        const OnDevice<float> device_bias(bias);
        const cuda::HeadWeights head = {on_device.view(), {device_bias.data(), std::ssize(bias)}};
        ExpectSame(ProjectedOnDevice(head, states.view()),
                   DenseLogits({Matrix(weight), bias}, {Matrix(hidden), {}}),
                   testing::Message() << vocab << " x " << dim << ", rows " << rows);
      }
    }
  }
}

TEST_P(ProjectCuda, GivesTheBitsOfTheReferenceForHostileStatesAndHeads) {
  Random random(2);
  for (const HeadKind kind : kAllHeadKinds) {
    const Rows rows = Representable(MakeHead(kind, 70, 300, random), GetParam());
    const Batch weight(rows, GetParam());
    Rows states;
    for (const HiddenKind hidden : kAllHiddenKinds)
      states.push_back(MakeHidden(hidden, rows, random));
    states.push_back(states[0]);
    states.back()[3] = INFINITY;
    states.push_back(states[0]);
    states.back()[299] = NAN;
    states.emplace_back(300, 3e38f);
    const Batch hidden(states, DType::kF32);
    const DeviceMatrix on_device(weight);
    const DeviceMatrix on_device_states(hidden);
    ExpectSame(ProjectedOnDevice({on_device.view(), {}}, on_device_states.view()),
               DenseLogits({Matrix(weight)}, {Matrix(hidden), {}}),
               testing::Message() << "head " << static_cast<int>(kind));
  }
}

TEST_P(ProjectCuda, GivesSomeTokensTheBitsOfAll) {
  Random random(3);
  for (const int64_t dim : kDims) {
    const Batch weight(RandomRows(33, dim, random), GetParam());
    const Batch hidden(RandomRows(5, dim, random), DType::kBf16);
    const DeviceMatrix on_device(weight);
    const DeviceMatrix states(hidden);
    const std::vector<float> bias = MakeBias(33, random);
    const OnDevice<float> device_bias(bias);
    const cuda::HeadWeights head = {on_device.view(), {device_bias.data(), std::ssize(bias)}};
    const Rows all = ProjectedOnDevice(head, states.view());
    std::vector<int32_t> ids;
    for (int i = 0; i < 5 * 7; ++i) ids.push_back(static_cast<int32_t>(random.Below(33)));
    ids[3] = -1;
    ids[4] = 33;
    const OnDevice<int32_t> device_ids(ids);
    const OnDevice<float> logits(ids.size());
    cuda::ProjectTokens(head, states.view(), device_ids, logits, nullptr);
    const std::vector<float> some = logits.Get();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= 33) {
        EXPECT_TRUE(std::isnan(some[i]));
      } else {
        EXPECT_TRUE(SameBits(some[i], all[i / 7][static_cast<size_t>(ids[i])])) << dim << " " << i;
      }
    }
  }
}

TEST_P(ProjectCuda, RefusesHeadsAndStatesThatDoNotFit) {
  Random random(4);
  const Batch weight(RandomRows(4, 16, random));
  const Batch narrow(RandomRows(2, 15, random));
  const DeviceMatrix on_device(weight);
  const DeviceMatrix states(narrow);
  EXPECT_THROW(ProjectedOnDevice({on_device.view(), {}}, states.view()), Error);
  EXPECT_THROW(ProjectedOnDevice({Matrix(weight), {}}, on_device.view()), Error);
}

INSTANTIATE_TEST_SUITE_P(All, ProjectCuda, ::testing::ValuesIn(kAllDTypes),
                         [](const auto& dtype) { return std::string(Name(dtype.param)); });

}  // namespace
}  // namespace sluice::test
