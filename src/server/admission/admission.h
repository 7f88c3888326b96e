// How many requests may be in flight, of all threads together and of each key.
//
// One counter for all threads, not a share for each: the kernel spreads connections by chance, and
// a share would refuse on one thread while another has room. That costs a request two additions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace sluice::server {

class Admission {
 public:
  // One request's place, until it is destroyed.
  class Permit {
   public:
    Permit(Permit&& from) noexcept
        : all_(std::exchange(from.all_, nullptr)), key_(std::exchange(from.key_, nullptr)) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit() {
      if (key_ != nullptr) key_->fetch_sub(1, std::memory_order_relaxed);
      if (all_ != nullptr) all_->fetch_sub(1, std::memory_order_relaxed);
    }

   private:
    friend class Admission;
    Permit() = default;

    std::atomic<int64_t>* all_ = nullptr;
    std::atomic<int64_t>* key_ = nullptr;
  };

  // keys: how many there are; max_per_key 0: no limit.
  Admission(int64_t max_requests, size_t keys, int64_t max_per_key);

  // Throws ApiFailure: 503 when the server is full, 429 when the key has as many as it may.
  Permit Admit(std::optional<size_t> key);

  bool is_full() const { return in_flight() >= max_requests_; }
  int64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  const int64_t max_requests_;
  const int64_t max_per_key_;
  std::atomic<int64_t> in_flight_ = 0;
  std::unique_ptr<std::atomic<int64_t>[]> of_key_;
};

}  // namespace sluice::server
