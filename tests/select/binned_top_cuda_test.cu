// What bins of value find of a long list equals the reference, and only of what crowds in one bin
// nothing is found: callers cannot tell, because the definition answers in its place.
#include <algorithm>
#include <functional>
#include <vector>

#include "select/cuda/binned_top.cuh"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"
#include "tests/support/rows.h"
#include "tests/support/run.h"

namespace sluice::test {
namespace {

using cuda::TopBins;

// In shared memory.
struct BinsMemory {
  cuda::TeamMemory team;
  cuda::RowPrologue start;
  TopBins bins;
};

// A block for each of the parameters.
__global__ void SelectByBinsKernel(uint64_t* tokens, int size, const SelectParams* params,
                                   uint64_t* last, Cut* cuts) {
  __shared__ __align__(16) unsigned char shared[sizeof(BinsMemory)];
  BinsMemory& memory = *reinterpret_cast<BinsMemory*>(shared);
  const cuda::Team block(memory.team);
  if (block.thread() == 0) {
    memory.start.params = params[blockIdx.x];
    memory.start.scales = semantics::ScalesOf(memory.start.params);
  }
  block.SyncBlock();
  const cuda::ListedTokens from{tokens, reinterpret_cast<uint64_t*>(&memory.bins), size};
  const cuda::BinnedTop kept = cuda::SelectByBins(block, from, memory.start);
  Cut cut;
  if (kept.last != 0) cut = cuda::CutOfBins(block, from, kept);
  if (block.thread() == 0) {
    last[blockIdx.x] = kept.last;
    cuts[blockIdx.x] = cut;
  }
}

class BinnedTop : public DeviceTest {
 protected:
  // Of the list of a row's first tokens, in any order.
  void Expect(const std::vector<float>& row, size_t listed, const std::vector<SelectParams>& params,
              bool is_found) {
    std::vector<uint64_t> tokens;
    for (size_t i = 0; i < row.size(); ++i) {
      tokens.push_back(uint64_t{semantics::OrderKey(row[i])} << 32 | ~static_cast<uint32_t>(i));
    }
    std::sort(tokens.begin(), tokens.end(), std::greater<>());
    tokens.resize(listed);
    for (size_t i = listed - 1; i > 0; --i) {
      std::swap(tokens[i], tokens[static_cast<size_t>(random_.Below(static_cast<int64_t>(i) + 1))]);
    }

    const std::vector<std::vector<float>> rows(params.size(), row);
    const std::vector<NoiseKey> keys(params.size());
    const Batch batch(rows, DType::kF32);
    const std::vector<Cut> expected = Selected({batch.view(), params, keys}).cuts;
    const OnDevice<uint64_t> tokens_there(tokens);
    const OnDevice<SelectParams> params_there(params);
    for (const unsigned threads : {512u, 1024u}) {
      SCOPED_TRACE(testing::Message() << threads << " threads");
      const OnDevice<uint64_t> last(params.size());
      const OnDevice<Cut> cuts(params.size());
      SelectByBinsKernel<<<static_cast<unsigned>(params.size()), threads>>>(
          tokens_there.data(), static_cast<int>(listed), params_there.data(), last.data(),
          cuts.data());
      Require(cudaGetLastError());
      for (const uint64_t token : last.Get()) EXPECT_EQ(token != 0, is_found);
      if (is_found) {
        EXPECT_TRUE(SameSequence(cuts.Get(), expected));
      }
    }
  }

 private:
  Random random_{16};
};

// The value in the middle of a bin where the largest is 8 and the least 0, and near it: whatever a
// division is rounded to, the bin is the same.
float InBin(int bin, double from_middle = 0.0) {
  return static_cast<float>(8.0 - (bin + 0.5 + 0.5 * from_middle) * 8.0 / TopBins::kBins);
}

constexpr Profile kLastMinP = {.min_p_stage = MinPStage::kLast};

// Lists as a guess at k tokens leaves them (docs/notes/gpu-sampling.md).
TEST_F(BinnedTop, IsFoundInRowsLikeAModels) {
  Random random(17);
  for (const RowKind kind : {RowKind::kMid, RowKind::kPeaked, RowKind::kBf16Rounded}) {
    const std::vector<float> row = MakeRow(kind, 128256, random);
    for (const int32_t k : {300, 1000, 2000}) {
      SCOPED_TRACE(testing::Message() << Name(kind) << ", top_k " << k);
      Expect(row, static_cast<size_t>(k) * 7 / 5,
             {{.top_k = k},
              {.top_k = k, .top_p = 0.95f},
              {.temperature = 2.0f, .top_k = k, .top_p = 0.99f},
              {.top_k = k, .min_p = 0.05f, .profile = kLastMinP},
              {.top_k = k, .min_p = 0.05f},
              {.top_k = k, .top_p = 0.9f, .min_p = 1e-4f}},
             true);
    }
  }
}

// Every k, so that boundaries are the first and the last of a bin, and those of top-p at the last
// token of top-k. Two neighbours are equal each.
TEST_F(BinnedTop, IsFoundAtEveryPlaceOfABin) {
  constexpr int kCrowds = 20, kInACrowd = 30;
  std::vector<float> row = {8.0f, 0.0f};
  for (int i = 0; i < kCrowds * kInACrowd; ++i) {
    const int in_crowd = i / kCrowds;
    row.push_back(InBin(i % kCrowds * 50 + 3, in_crowd / 2 / 15.0 - 0.5));
  }
  std::vector<SelectParams> params;
  Profile inclusive = kLastMinP;
  inclusive.top_p_boundary = TopPBoundary::kInclusive;
  for (const Profile& profile : {kLastMinP, inclusive, Profile{}}) {
    for (int32_t k = 1; k <= static_cast<int32_t>(row.size()) + 1; ++k) {
      params.push_back({.top_k = k, .profile = profile});
      for (const float top_p : {0.99999994f, 0.9f, 0.3f, 1e-6f}) {
        params.push_back({.top_k = k, .top_p = top_p, .profile = profile});
      }
      for (const float min_p : {0.3f, 1.0f}) {
        params.push_back({.top_k = k, .min_p = min_p, .profile = profile});
        params.push_back({.top_k = k, .top_p = 0.9f, .min_p = min_p, .profile = profile});
      }
    }
  }
  for (size_t first = 0; first < params.size(); first += 500) {
    const auto begin = params.begin() + static_cast<ptrdiff_t>(first);
    const auto end = params.begin() + static_cast<ptrdiff_t>(std::min(first + 500, params.size()));
    Expect(row, row.size(), {begin, end}, true);
  }
}

// 301 tokens above a bin with so many, and 201 below it.
std::vector<float> RowWithInBin(int in_bin) {
  std::vector<float> row = {8.0f, 0.0f};
  for (int bin = 1; bin <= 300; ++bin) row.push_back(InBin(bin));
  for (int i = 0; i < in_bin; ++i) row.push_back(InBin(400, double(i) / in_bin - 0.5));
  for (int bin = 500; bin < 700; ++bin) row.push_back(InBin(bin));
  return row;
}

TEST_F(BinnedTop, LooksIntoABinAsFullAsItMayBeAndNoFuller) {
  constexpr int kAbove = 301;
  for (const int in_bin : {TopBins::kMostInBin, TopBins::kMostInBin + 1}) {
    SCOPED_TRACE(in_bin);
    const std::vector<float> row = RowWithInBin(in_bin);
    const bool is_found = in_bin <= TopBins::kMostInBin;
    // At temperature 2 the bin begins at less than 0.72 of the mass and ends at more than 0.9.
    Expect(row, row.size(),
           {{.top_k = kAbove + 1},
            {.top_k = kAbove + in_bin / 2},
            {.top_k = kAbove + in_bin},
            {.temperature = 2.0f, .top_k = static_cast<int32_t>(row.size()), .top_p = 0.8f}},
           is_found);
    Expect(row, row.size(), {{.top_k = kAbove}, {.top_k = kAbove + in_bin + 1}}, true);
  }
}

// The largest value is the least one.
TEST_F(BinnedTop, IsFoundAmongEqualTokensThatABinHasRoomFor) {
  for (const int size : {TopBins::kMostInBin, TopBins::kMostInBin + 1}) {
    SCOPED_TRACE(size);
    Expect(std::vector<float>(static_cast<size_t>(size), 2.5f), static_cast<size_t>(size),
           {{.top_k = 1}, {.top_k = 200, .top_p = 0.5f}, {.top_k = size}},
           size <= TopBins::kMostInBin);
  }
}

// Where the slope is infinite, 0 or unknown because the distance from the largest value to the
// least is, one or two bins have them all.
TEST_F(BinnedTop, IsFoundAmongHugeAndTinyValues) {
  for (const float unit : {1e36f, 4e36f, 6.5e36f, 1e-38f}) {
    SCOPED_TRACE(unit);
    std::vector<float> row;
    for (int i = 0; i < 400; ++i) row.push_back(static_cast<float>(i - 250) * 0.2f * unit);
    Expect(row, row.size(), {{.top_k = 100}, {.top_k = 399}, {.top_k = 1000}}, true);
  }
}

}  // namespace
}  // namespace sluice::test
