// Calls of several GPUs that do not fit together are an Error on each rank that names what differs.
// One GPU is enough: nothing is sampled.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <functional>

#include "sluice/cuda/shards.hpp"
#include "tests/parallel/ranks.h"
#include "tests/support/device.h"

namespace sluice::test {
namespace {

constexpr int64_t kRows = 3;

// What a call is about, of either rank.
struct Asked {
  explicit Asked(int32_t rank) : slice{20, rank * 10, 10} {}

  ShardSlice slice;
  std::vector<SelectParams> params = std::vector<SelectParams>(kRows, SelectParams{.top_k = 3});
  std::vector<NoiseKey> keys = std::vector<NoiseKey>(kRows, NoiseKey{7, 1, 0});
  int64_t rows = kRows;
  DType dtype = DType::kF32;
  int32_t candidates = 8;
  DrawMethod method = DrawMethod::kGumbel;
  cuda::ShardRows kind = cuda::ShardRows::kListed;
  cuda::ShardExchanges exchanges = cuda::ShardExchanges::kTwo;
  bool needs_cuts = true;
  Limits limits = {};
  LogprobMode mode = LogprobMode::kRawLogprobs;
  int32_t width = 0;
};

struct Bad {
  std::function<void(Asked&)> spoil;  // rank 1
  std::string error;
};

using Compare =
    std::function<std::vector<ShardSlice>(ShardGroup&, const Asked&, const cuda::RowParams&)>;

std::vector<ShardSlice> CompareLogits(ShardGroup& group, const Asked& asked,
                                      const cuda::RowParams& params) {
  return cuda::CompareCalls(group,
                            cuda::ShardCall{.logits = {nullptr, asked.rows, 10, 10, asked.dtype},
                                            .slice = asked.slice,
                                            .params = params,
                                            .method = asked.method,
                                            .candidates = asked.candidates,
                                            .kind = asked.kind,
                                            .exchanges = asked.exchanges});
}

std::vector<ShardSlice> CompareHead(ShardGroup& group, const Asked& asked,
                                    const cuda::RowParams& params) {
  return cuda::CompareCalls(group, cuda::ShardHeadCall{.slice = asked.slice,
                                                       .params = params,
                                                       .candidates = asked.candidates,
                                                       .needs_cuts = asked.needs_cuts,
                                                       .logits = {nullptr, asked.rows, 10, 10}});
}

std::vector<ShardSlice> CompareLogprobs(ShardGroup& group, const Asked& asked,
                                        const cuda::RowParams& params) {
  return cuda::CompareCalls(group, cuda::ShardLogprobCall{.logits = {nullptr, asked.rows, 10, 10},
                                                          .slice = asked.slice,
                                                          .params = params,
                                                          .mode = asked.mode,
                                                          .lists = {asked.width, {}, {}}});
}

// Each case in turn on two ranks, and at last one where both agree.
void ExpectRefused(const std::vector<Bad>& cases, const Compare& compare) {
  int devices = 0;  // asked in another process: a CUDA context does not survive a fork
  const auto has_device = AnswersOfRanks(1, [&](const std::string&, int32_t) {
    const bool is_there = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
    return std::string(is_there ? "yes" : "no");
  });
  if (has_device[0] == "no") GTEST_SKIP() << "no CUDA device";
  ExpectAllWell(AnswersOfGroup(2, [&](ShardGroup& group) -> std::string {
    auto answer_of = [&](const Asked& asked) -> std::string {
      const OnDevice<SelectParams> params(asked.params);
      const OnDevice<NoiseKey> keys(asked.keys);
      try {
        const auto slices = compare(group, asked, {params, keys, asked.limits});
        const bool is_right = slices.size() == 2 && slices[1].first_id == slices[0].tokens;
        return is_right ? "" : "other slices";
      } catch (const Error& error) {
        return error.what();
      }
    };
    for (const Bad& bad : cases) {
      Asked asked(group.rank());
      if (group.rank() == 1) bad.spoil(asked);
      const std::string answer = answer_of(asked);
      if (answer != bad.error) return "\"" + answer + "\" for \"" + bad.error + "\"";
    }
    return answer_of(Asked(group.rank()));
  }));
}

TEST(CompareCalls, RefusesSampledLogitsThatDoNotFitOnEveryRank) {
  ExpectRefused({{[](Asked& a) { a.slice = {20, 11, 9}; },
                  "slice.first_id = 11 on rank 1 is not allowed: 10, where rank 0 ends"},
                 {[](Asked& a) { a.slice = {20, 9, 11}; },
                  "slice.first_id = 9 on rank 1 is not allowed: 10, where rank 0 ends"},
                 {[](Asked& a) { a.slice.vocab = 21; },
                  "slice.vocab = 21 on rank 1 is not allowed: 20, as on rank 0"},
                 {[](Asked& a) { a.dtype = DType::kBf16; },
                  "logits.dtype = 1 on rank 1 is not allowed: 0, as on rank 0"},
                 {[](Asked& a) { a.candidates = 9; },
                  "candidates = 9 on rank 1 is not allowed: 8, as on rank 0"},
                 {[](Asked& a) {
                    a.rows = 1;
                    a.params.resize(1);
                    a.keys.resize(1);
                  },
                  "logits.rows = 1 on rank 1 is not allowed: 3, as on rank 0"},
                 {[](Asked& a) { a.method = DrawMethod::kCdf; },
                  "method = 1 on rank 1 is not allowed: 0, as on rank 0"},
                 {[](Asked& a) { a.kind = cuda::ShardRows::kAny; },
                  "kind = 2 on rank 1 is not allowed: 0, as on rank 0"},
                 {[](Asked& a) { a.exchanges = cuda::ShardExchanges::kOne; },
                  "exchanges = 1 on rank 1 is not allowed: 2, as on rank 0"},
                 {[](Asked& a) { a.params[2].top_p = 0.5f; },
                  "params.top_p = 0.5 on rank 1 is not allowed: 1, as on rank 0"},
                 {[](Asked& a) { a.keys[1].seed = 8; },
                  "keys.seed = 8 on rank 1 is not allowed: 7, as on rank 0"},
                 {[](Asked& a) { a.limits.max_temperature = 5.0f; },
                  "limits.max_temperature = 5 on rank 1 is not allowed: 2, as on rank 0"},
                 // One for all rows is as many.
                 {[](Asked& a) {
                    a.params.resize(1);
                    a.keys.resize(1);
                  },
                  ""}},
                CompareLogits);
}

TEST(CompareCalls, RefusesHeadsThatDoNotFitOnEveryRank) {
  ExpectRefused({{[](Asked& a) { a.needs_cuts = false; },
                  "needs_cuts = 0 on rank 1 is not allowed: 1, as on rank 0"},
                 {[](Asked& a) { a.slice = {20, 10, 9}; },
                  "slice.tokens = 9 on rank 1 is not allowed: 10, up to the end of the "
                  "vocabulary"}},
                CompareHead);
}

TEST(CompareCalls, RefusesMoreCandidatesThanTheSmallestSliceHasOnEveryRank) {
  ExpectRefused({}, [](ShardGroup& group, const Asked& asked, const cuda::RowParams& params) {
    Asked other = asked;
    other.slice = group.rank() == 0 ? ShardSlice{20, 0, 13} : ShardSlice{20, 13, 7};
    try {
      CompareHead(group, other, params);
    } catch (const Error& error) {
      const std::string expected = "candidates = 8 is not allowed: [1, 7]";
      return error.what() == expected ? CompareHead(group, asked, params)
                                      : std::vector<ShardSlice>{};
    }
    return std::vector<ShardSlice>{};
  });
}

// A step would refuse it on that rank alone, and the others would wait.
TEST(CompareCalls, RefusesASliceOfNoTokensOnEveryRank) {
  for (const Compare& compare : {Compare(CompareLogits), Compare(CompareLogprobs)}) {
    ExpectRefused({}, [&](ShardGroup& group, const Asked& asked, const cuda::RowParams& params) {
      Asked other = asked;
      other.slice = group.rank() == 0 ? ShardSlice{20, 0, 20} : ShardSlice{20, 20, 0};
      try {
        compare(group, other, params);
      } catch (const Error& error) {
        const std::string expected = "slice.tokens = 0 on rank 1 is not allowed: at least 1";
        if (error.what() == expected) return compare(group, asked, params);
      }
      return std::vector<ShardSlice>{};
    });
  }
}

TEST(CompareCalls, RefusesLogprobsThatDoNotFitOnEveryRank) {
  ExpectRefused({{[](Asked& a) { a.mode = LogprobMode::kRawLogits; },
                  "mode = 1 on rank 1 is not allowed: 0, as on rank 0"},
                 {[](Asked& a) { a.width = 21; },
                  "lists.width = 21 on rank 1 is not allowed: 0, as on rank 0"},
                 {[](Asked& a) { a.params[0].temperature = 0.5f; },
                  "params.temperature = 0.5 on rank 1 is not allowed: 1, as on rank 0"},
                 {[](Asked& a) { a.keys[1].seed = 8; }, ""}},
                CompareLogprobs);
}

}  // namespace
}  // namespace sluice::test
