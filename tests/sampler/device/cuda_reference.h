// Everything that the CUDA backend says of some rows, next to the reference.
#pragma once

#include <vector>

#include "sluice/cuda/rows.hpp"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"
#include "tests/support/request_rows.h"
#include "tests/support/run.h"

namespace sluice::test {

inline constexpr DrawMethod kMethods[] = {DrawMethod::kGumbel, DrawMethod::kCdf};
inline constexpr RowStartAt kStarts[] = {RowStartAt::kAligned, RowStartAt::kOneElementOn};

inline void ExpectReference(const RequestRows& rows, DType dtype, RowStartAt start) {
  const Batch batch(rows.values, dtype);
  const DeviceBatch device(batch, start);
  const OnDevice<SelectParams> params(rows.params);
  const OnDevice<NoiseKey> keys(rows.keys);
  const SelectInput input{batch.view(), rows.params, rows.keys};
  const cuda::RowParams on_device{params, keys};
  const size_t count = rows.values.size();

  const Selection expected = Selected(input);
  OnDevice<Cut> cuts(count);
  const OnDevice<CutMass> masses(count);
  cuda::Select(device.view(), on_device, cuts, masses, nullptr);
  EXPECT_TRUE(SameSequence(cuts.Get(), expected.cuts));
  EXPECT_TRUE(SameSequence(masses.Get(), expected.masses));
  cuts.Set(std::vector<Cut>(count));
  cuda::Select(device.view(), on_device, cuts, {}, nullptr);
  EXPECT_TRUE(SameSequence(cuts.Get(), expected.cuts));

  for (const DrawMethod method : kMethods) {
    const std::vector<TokenResult> tokens = Sampled(input, method);
    const OnDevice<TokenResult> results(count);
    cuda::Sample(device.view(), on_device, method, results, nullptr);
    EXPECT_TRUE(SameSequence(results.Get(), tokens));
    const OnDevice<int32_t> ids(count);
    const OnDevice<RowStatus> statuses(count);
    cuda::SampleIds(device.view(), on_device, method, ids, statuses, nullptr);
    std::vector<int32_t> expected_ids;
    std::vector<RowStatus> expected_statuses;
    for (const TokenResult& token : tokens) {
      expected_ids.push_back(token.id);
      expected_statuses.push_back(token.status);
    }
    EXPECT_TRUE(SameSequence(ids.Get(), expected_ids));
    EXPECT_TRUE(SameSequence(statuses.Get(), expected_statuses));
    const OnDevice<TokenResult> drawn(count);
    cuda::Draw(device.view(), on_device, method, cuts, drawn, nullptr);
    EXPECT_TRUE(SameSequence(drawn.Get(), tokens));
  }

  Batch masked(rows.values, dtype);
  Mask(masked.mutable_view(), expected.cuts, {Backend::kRef});
  const DeviceBatch in_two_calls(batch, start);
  cuda::Mask(in_two_calls.mutable_view(), cuts, nullptr);
  EXPECT_TRUE(SameSequence(in_two_calls.row_bytes(), masked.row_bytes()));
  const DeviceBatch in_one_call(batch, start);
  cuda::SelectAndMask(in_one_call.mutable_view(), on_device, cuts, nullptr);
  EXPECT_TRUE(SameSequence(in_one_call.row_bytes(), masked.row_bytes()));
}

}  // namespace sluice::test
