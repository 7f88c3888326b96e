// Workspaces of sharded calls: their parts, and what is checked of them and of slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "sluice/cuda/shards.hpp"
#include "support/check.h"

namespace sluice::cuda {

inline constexpr size_t kPartAlignment = 256;

// Parts of a workspace, one after the other. With null: their sizes alone.
class MemoryParts {
 public:
  explicit MemoryParts(std::byte* start) : start_(start) {}

  template <typename T>
  T* Take(size_t count) {
    T* part = start_ == nullptr ? nullptr : reinterpret_cast<T*>(start_ + bytes_);
    bytes_ += (count * sizeof(T) + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
    return part;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* start_;
  size_t bytes_ = 0;
};

inline void CheckWorkspace(const char* name, DeviceArray<std::byte> workspace, size_t bytes) {
  CheckInRange(std::string(name) + ".size", workspace.size, static_cast<int64_t>(bytes), INT64_MAX);
  if (bytes > 0 && workspace.data == nullptr) {
    ThrowInvalid(std::string(name) + ".data", "null", "a pointer to device memory");
  }
  const auto address = reinterpret_cast<uintptr_t>(workspace.data);
  if (address % kPartAlignment != 0) {
    ThrowInvalid(std::string(name) + ".data",
                 "an address of " + std::to_string(address % kPartAlignment) + " modulo " +
                     std::to_string(kPartAlignment),
                 "an address aligned to " + std::to_string(kPartAlignment));
  }
}

inline void CheckSlice(const ShardSlice& slice, const LogitsView& logits) {
  CheckInRange("slice.vocab", slice.vocab, 1, kMaxVocab);
  CheckInRange("slice.tokens", slice.tokens, 1, slice.vocab);
  CheckInRange("slice.first_id", slice.first_id, 0, slice.vocab - slice.tokens);
  CheckInRange("logits.vocab", logits.vocab, slice.tokens, kMaxVocab);
}

}  // namespace sluice::cuda
