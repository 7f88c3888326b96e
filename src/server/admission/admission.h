// How many choices may be in flight: of all threads together, of each key, and of each address
// where no key is needed. A request has one from its beginning, and n of each prompt when it has
// been read.
//
// A requester that shares the server with others gets no more places than it leaves free. One alone
// gets half of them, and then there is room for others; two get a third each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace sluice::server {

struct Requester {
  uint64_t id = 0;       // of its key or its address
  bool has_key = false;  // max_per_key is for it
  bool shares = false;   // there may be others
};

class Admission {
 public:
  // Places of one request, until it is destroyed.
  class Permit {
   public:
    Permit(Permit&& from) noexcept
        : of_(std::exchange(from.of_, nullptr)), requester_(from.requester_), count_(from.count_) {}
    Permit& operator=(Permit&&) = delete;
    ~Permit() {
      if (of_ != nullptr) of_->GiveBack(requester_.id, count_);
    }

    const Requester& requester() const { return requester_; }
    // Throws as Admit does, and then has as many as before; and 400 where an idle server has not as
    // many for this requester: the error names `field`.
    void Take(int64_t more, std::string_view field = "n") {
      of_->Take(requester_, more, count_, field);
      count_ += more;
    }

   private:
    friend class Admission;
    Permit(Admission& of, const Requester& requester)
        : of_(&of), requester_(requester), count_(1) {}

    Admission* of_;
    Requester requester_;
    int64_t count_;
  };

  // max_per_key 0: no limit.
  Admission(int64_t max_choices, int64_t max_per_key)
      : max_choices_(max_choices), max_per_key_(max_per_key) {}

  // One place. Throws ApiFailure: 503 when the server is full, 429 when the requester has as many
  // as it may.
  Permit Admit(const Requester& requester) {
    Take(requester, 1, 0, {});
    return {*this, requester};
  }

  bool is_full() const { return in_flight() >= max_choices_; }
  int64_t in_flight() const {
    const std::lock_guard lock(mutex_);
    return in_flight_;
  }

 private:
  // `had` is what the request has already.
  void Take(const Requester& requester, int64_t more, int64_t had, std::string_view field);
  // Of one requester, where it alone has some.
  int64_t MostOfOne(const Requester& requester) const;
  void GiveBack(uint64_t id, int64_t count);

  const int64_t max_choices_;
  const int64_t max_per_key_;
  mutable std::mutex mutex_;
  int64_t in_flight_ = 0;
  std::unordered_map<uint64_t, int64_t> of_requester_;  // that have some
};

}  // namespace sluice::server
