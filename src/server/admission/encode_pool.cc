#include "server/admission/encode_pool.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <compare>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <set>
#include <stop_token>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "support/check.h"

namespace sluice::server {
namespace {

constexpr int64_t kLong = int64_t{1} << 20;  // bytes, from which on a job is a long one

struct Job {
  std::function<void()> work;
  boost::asio::any_io_executor loop;
  std::function<void()> then;
  int64_t bytes = 0;
};

// Jobs of groups in turn, by the bytes that each was given: a group that comes back while others
// wait goes on from what it had. O(log(groups)).
class GroupQueue {
 public:
  bool IsEmpty() const { return waiting_.empty(); }
  void Push(uint64_t group, Job job) {
    const auto [found, is_new] = groups_.try_emplace(group);
    Group& to = found->second;
    try {
      to.jobs.push_back(std::move(job));
      if (is_new) to.place = waiting_.insert({level_, ++arrivals_, group}).first;
    } catch (...) {
      if (is_new) groups_.erase(found);
      throw;
    }
    if (is_new || to.jobs.size() > 1) return;
    auto node = idle_.extract(to.place);
    node.value() = {std::max(level_, node.value().served), ++arrivals_, group};
    to.place = waiting_.insert(std::move(node)).position;
  }
  // Of a queue that is not empty. Allocates nothing.
  Job Pop() {
    auto node = waiting_.extract(waiting_.begin());
    Place& place = node.value();
    Group& from = groups_.find(place.group)->second;
    Job job = std::move(from.jobs.front());
    from.jobs.pop_front();
    level_ = place.served;
    place.served += job.bytes;
    place.arrival = ++arrivals_;
    from.place = (from.jobs.empty() ? idle_ : waiting_).insert(std::move(node)).position;
    while (!idle_.empty() && (waiting_.empty() || idle_.begin()->served <= level_)) {
      groups_.erase(idle_.begin()->group);
      idle_.erase(idle_.begin());
    }
    return job;
  }

 private:
  struct Place {
    int64_t served;    // bytes that the group was given, and those of others before it came
    uint64_t arrival;  // decides between equal ones
    uint64_t group;
    auto operator<=>(const Place&) const = default;
  };
  struct Group {
    std::deque<Job> jobs;
    std::set<Place>::iterator place;
  };
  std::unordered_map<uint64_t, Group> groups_;
  std::set<Place> waiting_;  // of groups with jobs
  std::set<Place> idle_;     // of groups without, which were given more than the level
  int64_t level_ = 0;        // what the group had been given that was served last
  uint64_t arrivals_ = 0;
};

}  // namespace

class EncodePool::Impl {
 public:
  explicit Impl(int32_t threads) : most_long_(std::max(1, threads - 1)) {
    CheckInRange("encode_threads", threads, 1, 1024);
    for (int32_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) { Work(stop); });
    }
  }
  ~Impl() {
    for (std::jthread& thread : threads_) thread.request_stop();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void Run(std::function<void()> work, const boost::asio::any_io_executor& loop,
           std::function<void()> then, size_t bytes, uint64_t group) {
    {
      const std::lock_guard lock(mutex_);
      const auto size = static_cast<int64_t>(bytes);
      (size > kLong ? long_ : short_).Push(group, {std::move(work), loop, std::move(then), size});
    }
    added_.notify_all();  // the first one may not take a long one
  }

 private:
  void Work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    // True also when there is work left after a stop.
    while (added_.wait(lock, stop, [this] { return !short_.IsEmpty() || MayTakeLong(); }) &&
           !stop.stop_requested()) {
      const bool is_long = MayTakeLong() && (short_.IsEmpty() || passed_ >= kLong);
      Job job = (is_long ? long_ : short_).Pop();
      if (is_long) {
        ++long_running_;
        passed_ = short_.IsEmpty() ? 0 : passed_ - job.bytes;
      } else if (MayTakeLong()) {
        passed_ += std::max<int64_t>(job.bytes, 1);
      }
      lock.unlock();
      try {
        job.work();
      } catch (const std::bad_alloc&) {  // `then` finds no result
      }
      job.work = nullptr;  // what it held is freed here, not on the loop
      if (!stop.stop_requested()) boost::asio::post(job.loop, std::move(job.then));
      lock.lock();
      if (is_long && long_running_-- == most_long_) added_.notify_one();
    }
  }
  bool MayTakeLong() const { return !long_.IsEmpty() && long_running_ < most_long_; }

  std::mutex mutex_;
  std::condition_variable_any added_;
  GroupQueue short_;
  GroupQueue long_;
  int32_t long_running_ = 0;
  // Bytes of short ones that went before a long one that could be taken, less those of long ones
  // that went before short ones: neither kind keeps the other waiting without an end.
  int64_t passed_ = 0;
  const int32_t most_long_;
  std::vector<std::jthread> threads_;
};

EncodePool::EncodePool(int32_t threads) : impl_(std::make_unique<Impl>(threads)) {}
EncodePool::~EncodePool() = default;

void EncodePool::Run(std::function<void()> work, const boost::asio::any_io_executor& loop,
                     std::function<void()> then, size_t bytes, uint64_t group) {
  impl_->Run(std::move(work), loop, std::move(then), bytes, group);
}

}  // namespace sluice::server
