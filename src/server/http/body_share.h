// The budget of all bodies that are in memory: those that are read, and those that wait to be
// encoded.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace sluice::server {

// Bytes of bodies, of all threads together and of each client that has some. Client 0 stands for
// those without a number of their own, so nothing is counted as its own.
class BodyBytes {
 public:
  int64_t all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  friend class BodyShare;

  // The larger of a body and of all bodies of its client; and all bodies with it.
  struct Use {
    int64_t its = 0;
    int64_t all = 0;
    bool FitsIn(size_t budget) const { return its + all <= static_cast<int64_t>(budget); }
  };

  Use Add(uint64_t client, int64_t more, int64_t body) {
    const std::lock_guard lock(mutex_);
    int64_t its = 0;
    if (client != 0) {
      const auto found = of_client_.try_emplace(client, 0).first;
      its = found->second += more;
      if (its == 0) of_client_.erase(found);
    }
    all_ += more;
    return {std::max(its, body), all_};
  }
  Use With(uint64_t client, int64_t body) const {
    const std::lock_guard lock(mutex_);
    const auto found = client == 0 ? of_client_.end() : of_client_.find(client);
    return {body + (found == of_client_.end() ? 0 : found->second), all_ + body};
  }

  mutable std::mutex mutex_;
  int64_t all_ = 0;
  std::unordered_map<uint64_t, int64_t> of_client_;
};

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
      : of_(std::exchange(from.of_, nullptr)),
        client_(from.client_),
        bytes_(std::exchange(from.bytes_, 0)) {}
  BodyShare& operator=(BodyShare&& from) noexcept {
    if (this == &from) return *this;
    Release();
    of_ = std::exchange(from.of_, nullptr);
    client_ = from.client_;
    bytes_ = std::exchange(from.bytes_, 0);
    return *this;
  }
  ~BodyShare() { Release(); }

  // A body gets no more than it leaves to others, and so do all bodies of one client together. So
  // the long ones are refused first, a short one of another client has room while long ones come,
  // and `all` never exceeds the budget. The client of a body is the same in all calls.
  bool GrowTo(size_t bytes, BodyBytes& all, uint64_t client, size_t budget) {
    const auto its = static_cast<int64_t>(bytes);
    const int64_t more = its - bytes_;
    if (more == 0) return true;
    const BodyBytes::Use use = all.Add(client, more, its);
    of_ = &all;
    client_ = client;
    bytes_ = its;
    return use.FitsIn(budget);
  }
  // Whether one of this size, which is still to come, would have room.
  static bool HasRoom(size_t bytes, const BodyBytes& all, uint64_t client, size_t budget) {
    return all.With(client, static_cast<int64_t>(bytes)).FitsIn(budget);
  }
  // The longest body that fits where there is no other.
  static size_t Longest(size_t budget) { return budget / 2; }

 private:
  void Release() {
    if (of_ != nullptr) of_->Add(client_, -bytes_, 0);
    of_ = nullptr;
    bytes_ = 0;
  }

  BodyBytes* of_ = nullptr;
  uint64_t client_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace sluice::server
