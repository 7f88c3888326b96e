// topk on a GPU as tests call it, between guards, and what the reference gives.
#pragma once

#include <algorithm>
#include <vector>

#include "bench/support/score_rows.h"
#include "sluice/cuda/topk.hpp"
#include "sluice/topk.hpp"
#include "tests/support/device.h"
#include "tests/support/first_difference.h"
#include "tests/support/run.h"

namespace sluice::test {

struct Answer {
  std::vector<int32_t> indices;
  std::vector<float> values;
  std::vector<RowStatus> statuses;
  std::vector<cuda::TopkWork> work;
  std::vector<float> thresholds;  // empty: none were passed
};

// What a call asks for beside its scores.
struct Request {
  int32_t k = 0;
  std::vector<int32_t> lengths = {};
  int32_t next_n = 1;
  std::vector<int32_t> hint = {};
  int32_t hint_columns = 0;
  int32_t hint_shift = 0;
  bool sorted = false;
  std::vector<float> thresholds = {};
};

inline Answer Reference(const LogitsView& scores, const Request& request) {
  const TopkInput input{scores,
                        request.k,
                        request.lengths,
                        request.next_n,
                        request.hint,
                        request.hint_columns,
                        request.hint_shift,
                        request.sorted};
  const Workspace workspace(TopkWorkspaceBytes(input, {Backend::kRef}));
  const auto rows = static_cast<size_t>(scores.rows);
  const size_t size = rows * static_cast<size_t>(request.k);
  Answer answer{
      std::vector<int32_t>(size), std::vector<float>(size), std::vector<RowStatus>(rows), {}, {}};
  Topk(input, answer.indices, answer.values, answer.statuses,
       {Backend::kRef, {}, workspace.span()});
  return answer;
}

// Between elements that nobody may write.
template <typename T>
class Guarded {
 public:
  explicit Guarded(size_t size)
      : size_(size), all_(std::vector<T>(size + 2 * kMargin, static_cast<T>(77))) {}

  cuda::DeviceArray<T> array() const {
    return {all_.data() + kMargin, static_cast<int64_t>(size_)};
  }
  std::vector<T> Get() const {
    const std::vector<T> all = all_.Get();
    const auto end = all.end() - static_cast<ptrdiff_t>(kMargin);
    const auto is_untouched = [](T x) { return x == static_cast<T>(77); };
    EXPECT_TRUE(std::all_of(all.begin(), all.begin() + kMargin, is_untouched));
    EXPECT_TRUE(std::all_of(end, all.end(), is_untouched));
    return {all.begin() + kMargin, end};
  }

 private:
  static constexpr size_t kMargin = 256;
  size_t size_;
  OnDevice<T> all_;
};

inline Answer OnGpu(const LogitsView& scores, const Request& request,
                    const cuda::TopkPlan* plan = nullptr) {
  const OnDevice<int32_t> lengths(request.lengths);
  const OnDevice<int32_t> hint(request.hint);
  const auto rows = static_cast<size_t>(scores.rows);
  const Guarded<int32_t> indices(rows * static_cast<size_t>(request.k));
  const Guarded<float> values(rows * static_cast<size_t>(request.k));
  const Guarded<RowStatus> statuses(rows);
  const OnDevice<cuda::TopkWork> work(rows);
  const OnDevice<float> thresholds(request.thresholds);
  cuda::Topk({scores, request.k, lengths, request.next_n, hint, request.hint_columns,
              request.hint_shift, request.sorted, thresholds},
             {indices.array(), values.array(), statuses.array(), work}, nullptr, plan);
  return {indices.Get(), values.Get(), statuses.Get(), work.Get(), thresholds.Get()};
}

inline void ExpectSame(const Answer& answer, const Answer& expected) {
  EXPECT_TRUE(SameSequence(answer.statuses, expected.statuses));
  EXPECT_TRUE(SameSequence(answer.indices, expected.indices));
  EXPECT_TRUE(SameSequence(answer.values, expected.values));
}

inline std::vector<std::vector<float>> RowsOf(bench::Scores scores, int64_t count,
                                              int64_t columns) {
  std::vector<std::vector<float>> rows;
  for (int64_t r = 0; r < count; ++r) {
    rows.push_back(bench::MakeScores(scores, columns, static_cast<uint32_t>(r)));
  }
  return rows;
}

}  // namespace sluice::test
