// A head in clusters on a GPU, and what its answers are beside the dense head's.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "research/clusters/cluster_call.h"
#include "tests/head/device_head.h"

namespace sluice::test {

using Certificate = research::ClusterCertificate;

// Rows that really lie in clusters: `centers` directions and little beside them.
inline Rows InClusters(int64_t vocab, int64_t dim, int64_t centers, double noise, Random& random) {
  const Rows means = MakeHead(HeadKind::kNormal, centers, dim, random);
  Rows rows;
  for (int64_t v = 0; v < vocab; ++v) {
    rows.push_back(means[static_cast<size_t>(v % centers)]);
    for (float& x : rows.back()) x += static_cast<float>(noise * random.Normal());
  }
  return rows;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  research::ClusterRow row;
};

// A head in clusters in device memory.
class DeviceSearch {
 public:
  DeviceSearch(const Batch& weight, const std::vector<float>& bias,
               const research::HeadClusters& clusters, const research::ClusterBudget& budget = {},
               RowStartAt start = RowStartAt::kAligned)
      : weight_(weight, start), bias_(bias), memory_(research::DeviceClusterBytes(clusters)) {
    call_.head = {weight_.view(), {bias_.data(), std::ssize(bias)}};
    call_.clusters = research::UploadClusters(clusters, memory_, nullptr);
    call_.budget = budget;
  }

  // For questions of so many sequences.
  void StartPaces(size_t rows) {
    paces_ =
        std::make_unique<OnDevice<research::ClusterPace>>(std::vector<research::ClusterPace>(rows));
    call_.paces = *paces_;
  }
  std::vector<research::ClusterPace> paces() const { return paces_->Get(); }

  void Prepare(const Batch& hidden) {
    hidden_ = std::make_unique<DeviceMatrix>(hidden);
    call_.hidden = hidden_->view();
    workspace_ = std::make_unique<OnDevice<std::byte>>(
        research::ClusterWorkspaceBytes(call_.clusters, call_.hidden.rows));
    call_.workspace = *workspace_;
  }

  std::vector<Answer> Ask(const Batch& hidden, const research::ClusterQuestion& question) {
    Prepare(hidden);
    const auto rows = static_cast<size_t>(call_.hidden.rows);
    const bool is_top = question.certificate == Certificate::kTopK;
    const auto width = static_cast<size_t>(is_top ? int64_t{question.k} : call_.head.weight.rows);
    const OnDevice<int32_t> ids(rows * width);
    const OnDevice<float> logits(rows * width);
    const OnDevice<research::ClusterRow> of_rows(rows);
    research::SearchClusters(call_, question, {ids, logits, of_rows}, nullptr);
    const std::vector<int32_t> all_ids = ids.Get();
    const std::vector<float> all_logits = logits.Get();
    const std::vector<research::ClusterRow> all_rows = of_rows.Get();
    std::vector<Answer> answers;
    for (size_t r = 0; r < rows; ++r) {
      const auto count = static_cast<ptrdiff_t>(all_rows[r].count);
      const auto first = static_cast<ptrdiff_t>(r * width);
      answers.push_back({{all_ids.begin() + first, all_ids.begin() + first + count},
                         {all_logits.begin() + first, all_logits.begin() + first + count},
                         all_rows[r]});
    }
    return answers;
  }

  // Behind an Ask.
  std::vector<float> Bounds() const {
    size_t bytes = 0;
    const research::ClusterMemory memory =
        research::LayOut(call_.clusters, call_.hidden.rows, workspace_->data(), &bytes);
    std::vector<float> bounds(static_cast<size_t>(call_.hidden.rows * call_.clusters.clusters));
    Require(cudaMemcpy(bounds.data(), memory.bounds, bounds.size() * sizeof(float),
                       cudaMemcpyDeviceToHost));
    return bounds;
  }

  const research::ClusterCall& call() const { return call_; }

 private:
  DeviceMatrix weight_;
  OnDevice<float> bias_;
  OnDevice<std::byte> memory_;
  std::unique_ptr<OnDevice<research::ClusterPace>> paces_;
  std::unique_ptr<DeviceMatrix> hidden_;
  std::unique_ptr<OnDevice<std::byte>> workspace_;
  research::ClusterCall call_;
};

// The tokens in the total order.
inline std::vector<int32_t> Sorted(const std::vector<float>& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return semantics::Before({logits[static_cast<size_t>(a)], a},
                             {logits[static_cast<size_t>(b)], b});
  });
  return ids;
}

inline bool IsFirst(const Answer& answer, const std::vector<float>& logits, size_t count) {
  const std::vector<int32_t> ids = Sorted(logits);
  if (answer.ids.size() != count) return false;
  for (size_t i = 0; i < count; ++i) {
    if (answer.ids[i] != ids[i]) return false;
    if (!SameBits(answer.logits[i], logits[static_cast<size_t>(ids[i])])) return false;
  }
  return true;
}

class DeviceSearchTest : public DeviceTest {
 protected:
  Rows States(const Rows& rows) {
    Rows states;
    for (const HiddenKind kind : kAllHiddenKinds) states.push_back(MakeHidden(kind, rows, random_));
    return states;
  }
  Rows Peaked(const Rows& rows, int count, float scale) {
    Rows states;
    for (int i = 0; i < count; ++i) {
      states.push_back(MakeHidden(HiddenKind::kPeaked, rows, random_));
      for (float& h : states.back()) h *= scale;
    }
    return states;
  }

  Random random_{91};
};

}  // namespace sluice::test
