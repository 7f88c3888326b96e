// The budget of all bodies that are in memory: those that are read, and those that wait to be
// encoded.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace sluice::server {

// What one body has of the budget, until it is destroyed.
class BodyShare {
 public:
  BodyShare() = default;
  // A copy has no share: the body that came has it.
  BodyShare(const BodyShare&) noexcept {}
  BodyShare& operator=(const BodyShare& from) noexcept {
    if (this != &from) Release();
    return *this;
  }
  BodyShare(BodyShare&& from) noexcept
      : all_(std::exchange(from.all_, nullptr)), bytes_(std::exchange(from.bytes_, 0)) {}
  BodyShare& operator=(BodyShare&& from) noexcept {
    if (this == &from) return *this;
    Release();
    all_ = std::exchange(from.all_, nullptr);
    bytes_ = std::exchange(from.bytes_, 0);
    return *this;
  }
  ~BodyShare() { Release(); }

  // A body gets no more than it leaves to others. So the long ones are refused first, and a short
  // one has room while long ones come: `all` never exceeds the budget.
  bool GrowTo(size_t bytes, std::atomic<int64_t>& all, size_t budget) {
    const auto its = static_cast<int64_t>(bytes);
    const int64_t more = its - bytes_;
    const int64_t together = all.fetch_add(more, std::memory_order_relaxed) + more;
    all_ = &all;
    bytes_ = its;
    return its + together <= static_cast<int64_t>(budget);
  }
  // Whether one of this size, which is still to come, would have room.
  static bool HasRoom(size_t bytes, const std::atomic<int64_t>& all, size_t budget) {
    return 2 * static_cast<int64_t>(bytes) + all.load(std::memory_order_relaxed) <=
           static_cast<int64_t>(budget);
  }

 private:
  void Release() {
    if (all_ != nullptr) all_->fetch_sub(bytes_, std::memory_order_relaxed);
    all_ = nullptr;
    bytes_ = 0;
  }

  std::atomic<int64_t>* all_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace sluice::server
