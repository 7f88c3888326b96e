// Keys and values of all layers, in pages of 16 positions: a layer's pages lie together, and a page
// has a block for each head of keys. A block has first the keys, [head_dim][16], so that one vector
// holds the same element of 16 positions, then the values, [16][value_stride].
#pragma once

#include <cstring>
#include <memory>
#include <new>

#include "model/config.h"
#include "model/layer_table.h"
#include "sluice/execution.hpp"

namespace sluice::model {

class Cache {
 public:
  Cache(const ModelInfo& info, int64_t pages)
      : heads_(static_cast<size_t>(info.kv_heads)),
        head_dim_(static_cast<size_t>(info.head_dim)),
        value_stride_((head_dim_ + kLanes - 1) / kLanes * kLanes),
        block_(kPagePositions * (head_dim_ + value_stride_)),
        page_stride_(block_ * heads_),
        layers_(static_cast<size_t>(info.layers)),
        layer_stride_(page_stride_ * static_cast<size_t>(pages)),
        // Left as it comes: what no token has used takes no memory of the machine.
        floats_(static_cast<float*>(::operator new(Bytes(info, pages), kAlignment))) {}

  static size_t Bytes(const ModelInfo& info, int64_t pages) {
    const auto head_dim = static_cast<size_t>(info.head_dim);
    const size_t value_stride = (head_dim + kLanes - 1) / kLanes * kLanes;
    return sizeof(float) * kPagePositions * (head_dim + value_stride) *
           static_cast<size_t>(info.kv_heads * info.layers * pages);
  }

  size_t page_stride() const { return page_stride_; }
  size_t value_stride() const { return value_stride_; }

  // The floats of one head in page 0.
  float* Head(size_t layer, size_t head) {
    return floats_.get() + layer * layer_stride_ + head * block_;
  }

  // keys, values: all heads of one position, [heads, head_dim].
  void Write(size_t layer, int32_t page, size_t slot, const float* keys, const float* values) {
    for (size_t h = 0; h < heads_; ++h) {
      float* const at = Head(layer, h) + static_cast<size_t>(page) * page_stride_;
      for (size_t d = 0; d < head_dim_; ++d) {
        at[d * kPagePositions + slot] = keys[h * head_dim_ + d];
      }
      float* const to = at + head_dim_ * kPagePositions + slot * value_stride_;
      std::memcpy(to, values + h * head_dim_, head_dim_ * sizeof(float));
      std::memset(to + head_dim_, 0, (value_stride_ - head_dim_) * sizeof(float));
    }
  }

  void CopyPage(int32_t from, int32_t to) {
    for (size_t layer = 0; layer < layers_; ++layer) {
      float* const page_0 = Head(layer, 0);
      std::memcpy(page_0 + static_cast<size_t>(to) * page_stride_,
                  page_0 + static_cast<size_t>(from) * page_stride_, page_stride_ * sizeof(float));
    }
  }

 private:
  static constexpr std::align_val_t kAlignment{kWorkspaceAlignment};
  struct Free {
    void operator()(float* memory) const { ::operator delete(memory, kAlignment); }
  };

  size_t heads_, head_dim_, value_stride_, block_, page_stride_, layers_, layer_stride_;
  std::unique_ptr<float, Free> floats_;
};

}  // namespace sluice::model
