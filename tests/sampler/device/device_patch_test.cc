// The patches of a step are what the adjustments make of its rows, by the definition written out.
#include "sampler/device/device_buffers.h"
#include "tests/sampler/stepping.h"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"

namespace sluice::test {
namespace {

using DevicePatch = DeviceTest;

// A row as whoever reads it with its patch sees it.
std::vector<float> Patched(const Batch& batch, int64_t r, const cuda::RowPatch& patch,
                           const std::vector<int32_t>& allowed) {
  std::vector<int32_t> ids(static_cast<size_t>(patch.count));
  std::vector<float> values(ids.size());
  if (patch.count > 0) {
    Require(cudaMemcpy(ids.data(), patch.ids, ids.size() * 4, cudaMemcpyDeviceToHost));
    Require(cudaMemcpy(values.data(), patch.values, ids.size() * 4, cudaMemcpyDeviceToHost));
  }
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_LT(ids[i - 1], ids[i]);
  std::vector<float> row;
  for (int64_t id = 0; id < batch.view().vocab; ++id) {
    const bool is_masked = patch.others_masked || (patch.allowed != nullptr &&
                                                   !semantics::BitmaskAllows(allowed.data(), id));
    row.push_back(is_masked ? -semantics::Infinity() : batch.Get(r, id));
  }
  for (size_t i = 0; i < ids.size(); ++i) row[static_cast<size_t>(ids[i])] = values[i];
  return row;
}

TEST_F(DevicePatch, IsWhatTheAdjustmentsMakeOfARow) {
  Random random(3);
  int64_t patched = 0;
  for (int round = 0; round < 60; ++round) {
    const int64_t vocab = random.Between(4, 90);
    const DType dtype = kAllDTypes[round % 3];
    const cuda::DeviceSamplerOptions options{.vocab = vocab,
                                             .max_requests = 6,
                                             .max_drafts = 5,
                                             .max_tokens = 64,
                                             .max_listed_ids = 32,
                                             .max_logprobs = 8};
    OnDevice<std::byte> memory(cuda::DeviceSamplerBytes(options));
    cuda::DeviceSampler sampler(options, memory);
    const cuda::DeviceBuffers buffers = cuda::BuffersOf(memory.data(), options);
    std::vector<LiteralRequest> literal;
    std::vector<RequestHandle> handles;
    for (int i = 0; i < 6; ++i) {
      literal.push_back(RandomLiteralRequest(vocab, random));
      literal.back().params.logprobs.reset();
      handles.push_back(AddTo(sampler, literal.back()));
    }
    for (int step = 0; step < 8; ++step) {
      std::vector<std::vector<float>> rows;
      std::vector<StepRequest> requests;
      std::vector<std::vector<int32_t>> drafts(literal.size());
      std::vector<std::vector<int32_t>> parents(literal.size());
      std::vector<std::vector<int32_t>> bitmasks(literal.size());
      for (size_t i = 0; i < literal.size(); ++i) {
        for (int64_t d = random.Below(6); d > 0; --d) {
          drafts[i].push_back(static_cast<int32_t>(random.Below(vocab)));
        }
        const int64_t count = std::ssize(drafts[i]) + 1;
        if (random.Coin()) parents[i] = RandomParents(count - 1, random);
        if (random.Coin(0.3)) bitmasks[i] = RandomBitmask(vocab, count, random);
        for (int64_t d = 0; d < count; ++d) {
          rows.push_back(MakeRow(kAllRowKinds[random.Below(8)], vocab, random));
        }
        requests.push_back(
            {.request = handles[i],
             .drafts = drafts[i],
             .parents = parents[i],
             .bitmask = bitmasks[i],
             .forced = random.Coin(0.1) ? static_cast<int32_t>(random.Below(vocab)) : -1});
      }
      const Batch batch(rows, dtype);
      const DeviceBatch device(batch);
      const cuda::DeviceStepResult result = sampler.Step({device.view(), requests}, nullptr).Get();
      Require(cudaDeviceSynchronize());
      std::vector<cuda::RowPatch> patches(rows.size());
      std::vector<NoiseKey> keys(rows.size());
      Require(cudaMemcpy(patches.data(), buffers.patches, rows.size() * sizeof patches[0],
                         cudaMemcpyDeviceToHost));
      Require(cudaMemcpy(keys.data(), buffers.keys, rows.size() * sizeof keys[0],
                         cudaMemcpyDeviceToHost));
      size_t r = 0;
      for (size_t i = 0; i < literal.size(); ++i) {
        std::vector<LiteralRequest> at_node = {literal[i]};
        const size_t words = static_cast<size_t>((vocab + 31) / 32);
        const size_t first = r;
        for (size_t d = 0; d <= drafts[i].size(); ++d, ++r) {
          SCOPED_TRACE(testing::Message() << "round " << round << ", step " << step << ", request "
                                          << i << ", draft " << d);
          if (d > 0) {
            const int64_t parent =
                parents[i].empty() ? static_cast<int64_t>(d) - 1 : parents[i][d - 1] + 1;
            at_node.push_back(at_node[static_cast<size_t>(parent)]);
            at_node.back().output.push_back(drafts[i][d - 1]);
          }
          const LiteralRequest& request = at_node[d];
          std::vector<int32_t> bitmask;
          if (!bitmasks[i].empty()) {
            const auto from = bitmasks[i].begin() + static_cast<ptrdiff_t>(d * words);
            bitmask.assign(from, from + static_cast<ptrdiff_t>(words));
          }
          std::vector<float> widened;
          for (int64_t id = 0; id < vocab; ++id) {
            widened.push_back(batch.Get(static_cast<int64_t>(r), id));
          }
          const std::vector<float> expected =
              request.Adjusted(widened, bitmask.empty() ? nullptr : bitmask.data(),
                               d == 0 ? requests[i].forced : -1);
          ASSERT_TRUE(
              SameSequence(Patched(batch, static_cast<int64_t>(r), patches[r], bitmask), expected));
          EXPECT_EQ(keys[r].position, request.Key().position);
          EXPECT_EQ(keys[r].seed, request.Key().seed);
          EXPECT_EQ(keys[r].choice, request.Key().choice);
          patched += patches[r].count;
        }
        for (int32_t n = 0; n < result.emitted[i]; ++n) {
          literal[i].output.push_back(result.ids[first + static_cast<size_t>(n)]);
        }
      }
    }
  }
  EXPECT_GT(patched, 10000);  // the test tests something
}

}  // namespace
}  // namespace sluice::test
