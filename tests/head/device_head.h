// Heads in device memory, and their calls, for tests that are about the answer.
#pragma once

#include <memory>
#include <vector>

#include "sluice/cuda/certified_sample.hpp"
#include "tests/head/certified.h"
#include "tests/support/device.h"

namespace sluice::test {

// A Batch in device memory, as a matrix.
class DeviceMatrix {
 public:
  explicit DeviceMatrix(const Batch& batch, RowStartAt start = RowStartAt::kAligned)
      : batch_(batch, start) {}
  MatrixView view() const {
    const LogitsView view = batch_.view();
    return {view.data, view.rows, view.vocab, view.stride, view.dtype, view.device};
  }

 private:
  DeviceBatch batch_;
};

inline std::vector<std::vector<float>> ProjectedOnDevice(const cuda::HeadWeights& head,
                                                         const MatrixView& hidden) {
  const auto rows = static_cast<size_t>(hidden.rows);
  const auto vocab = static_cast<size_t>(head.weight.rows);
  const OnDevice<float> logits(rows * vocab);
  cuda::Project(head, hidden,
                {logits.data(),
                 hidden.rows,
                 head.weight.rows,
                 head.weight.rows,
                 DType::kF32,
                 {DeviceKind::kCuda, 0}},
                nullptr);
  const std::vector<float> all = logits.Get();
  std::vector<std::vector<float>> of_rows;
  for (size_t r = 0; r < rows; ++r) {
    const auto begin = all.begin() + static_cast<ptrdiff_t>(r * vocab);
    of_rows.emplace_back(begin, begin + static_cast<ptrdiff_t>(vocab));
  }
  return of_rows;
}

// A certified head and hidden states to ask it about.
class DeviceHead {
 public:
  DeviceHead(const Batch& weight, const std::vector<float>& bias, const HeadPlanes& planes,
             RowStartAt start = RowStartAt::kAligned)
      : weight_(weight, start), bias_(bias), memory_(cuda::DevicePlaneBytes(planes)) {
    call_.head = {weight_.view(), {bias_.data(), std::ssize(bias)}};
    call_.planes = cuda::UploadPlanes(planes, memory_, nullptr);
  }

  void Ask(const Batch& hidden, const std::vector<int32_t>& bitmask) {
    hidden_ = std::make_unique<DeviceMatrix>(hidden);
    bitmask_ = std::make_unique<OnDevice<int32_t>>(bitmask);
    call_.hidden = hidden_->view();
    const size_t bytes = cuda::CertifiedWorkspaceBytes(call_.planes, call_.hidden.rows);
    workspace_ = std::make_unique<OnDevice<std::byte>>(bytes);
    rows_ = std::make_unique<OnDevice<cuda::HeadRow>>(static_cast<size_t>(call_.hidden.rows));
    refined_ = std::make_unique<OnDevice<int32_t>>(static_cast<size_t>(call_.hidden.rows));
    call_.bitmask = {bitmask_->data(), std::ssize(bitmask)};
    call_.workspace = *workspace_;
    call_.rows = *rows_;
    call_.refined = *refined_;
  }

  TopResult TopK(int32_t k) const {
    const auto rows = static_cast<size_t>(call_.hidden.rows);
    const OnDevice<int32_t> ids(rows * static_cast<size_t>(k));
    const OnDevice<float> logits(rows * static_cast<size_t>(k));
    const OnDevice<RowStatus> status(rows);
    cuda::TopK(call_, {k, ids, logits, status}, nullptr);
    TopResult top;
    top.ids = ids.Get();
    top.logits = logits.Get();
    top.status = status.Get();
    return top;
  }

  // Ids, and statuses as numbers behind them.
  std::vector<int32_t> Sample(const std::vector<SelectParams>& params,
                              const std::vector<NoiseKey>& keys, DrawMethod method) const {
    const auto rows = static_cast<size_t>(call_.hidden.rows);
    const OnDevice<SelectParams> on_device(params);
    const OnDevice<NoiseKey> keys_on_device(keys);
    const OnDevice<int32_t> ids(rows);
    const OnDevice<RowStatus> statuses(rows);
    cuda::SampleIdsFromHead(call_, {on_device, keys_on_device}, method, ids, statuses, nullptr);
    std::vector<int32_t> both = ids.Get();
    for (const RowStatus status : statuses.Get()) both.push_back(static_cast<int32_t>(status));
    return both;
  }

  std::vector<cuda::HeadRow> rows() const { return rows_->Get(); }
  std::vector<int32_t> refined() const { return refined_->Get(); }
  const cuda::CertifiedCall& call() const { return call_; }
  std::byte* planes() const { return memory_.data(); }

 private:
  DeviceMatrix weight_;
  OnDevice<float> bias_;
  OnDevice<std::byte> memory_;
  std::unique_ptr<DeviceMatrix> hidden_;
  std::unique_ptr<OnDevice<int32_t>> bitmask_;
  std::unique_ptr<OnDevice<std::byte>> workspace_;
  std::unique_ptr<OnDevice<cuda::HeadRow>> rows_;
  std::unique_ptr<OnDevice<int32_t>> refined_;
  cuda::CertifiedCall call_;
};

}  // namespace sluice::test
