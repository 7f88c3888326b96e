// A head whose logits are its hidden states, as the front of the graphs of steps: its weights are
// the unit matrix.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "sluice/cuda/head.hpp"
#include "sluice/cuda/sampler.hpp"
#include "tests/support/device.h"

namespace sluice::test {

class IdentityHead {
 public:
  IdentityHead(int64_t vocab, DType dtype, size_t most_rows)
      : vocab_(vocab),
        unit_(Batch(UnitMatrix(vocab), dtype, 0), RowStartAt::kAligned),
        dtype_(dtype),
        hidden_(most_rows * static_cast<size_t>(vocab) * SizeOf(dtype)),
        in_graph_(most_rows * static_cast<size_t>(vocab)),
        before_(most_rows * static_cast<size_t>(vocab)) {}

  // Puts the hidden states where the next step finds them. Answers the logits, computed apart: a
  // NaN or an infinity makes NaN of its whole row, so masked values are finite ones.
  std::vector<std::vector<float>> Project(std::vector<std::vector<float>> hidden) {
    for (std::vector<float>& row : hidden) {
      for (float& x : row) x = x == -INFINITY ? -1e4f : x;
    }
    const Batch batch(hidden, dtype_, 0);
    const auto bytes = batch.row_bytes();
    Require(cudaMemcpy(hidden_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice));
    const int64_t rows = std::ssize(hidden);
    Of(rows, before_.data()).Enqueue(nullptr);
    const std::vector<float> values = before_.Get();
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * vocab_, vocab_, hidden[static_cast<size_t>(r)].begin());
    }
    return hidden;
  }

  LogitsView View(int64_t rows) const {
    return {in_graph_.data(), rows, vocab_, vocab_, DType::kF32, kGpu};
  }
  // The graph of a step keeps its kernel and pointers: a source for each count of rows.
  cuda::LogitsSource Source(int64_t rows) {
    const auto product = products_.try_emplace(rows, Of(rows, in_graph_.data())).first;
    return {[](void* context, void* stream) { static_cast<Product*>(context)->Enqueue(stream); },
            &product->second};
  }

 private:
  static constexpr Device kGpu{DeviceKind::kCuda, 0};

  struct Product {
    cuda::HeadWeights weights;
    MatrixView hidden;
    MutableLogitsView logits;

    void Enqueue(void* stream) const { cuda::Project(weights, hidden, logits, stream); }
  };

  static std::vector<std::vector<float>> UnitMatrix(int64_t size) {
    std::vector<std::vector<float>> rows(static_cast<size_t>(size));
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].resize(rows.size());
      rows[r][r] = 1.0f;
    }
    return rows;
  }

  Product Of(int64_t rows, float* logits) const {
    const MatrixView weight{unit_.view().data, vocab_, vocab_, vocab_, dtype_, kGpu};
    return {{weight, {}},
            {hidden_.data(), rows, vocab_, vocab_, dtype_, kGpu},
            {logits, rows, vocab_, vocab_, DType::kF32, kGpu}};
  }

  int64_t vocab_;
  DeviceBatch unit_;
  DType dtype_;
  OnDevice<std::byte> hidden_;
  OnDevice<float> in_graph_;
  OnDevice<float> before_;
  std::map<int64_t, Product> products_;  // they stay in place
};

}  // namespace sluice::test
