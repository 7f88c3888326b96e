#include "server/admission/encode_pool.h"

#include <algorithm>
#include <boost/asio/post.hpp>
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

constexpr size_t kLong = size_t{1} << 20;  // bytes, from which on a job is a long one

struct Job {
  std::function<void()> work;
  boost::asio::any_io_executor loop;
  std::function<void()> then;
  int64_t bytes = 0;
};

// Jobs of groups in turn: the rule of the engine (engine/turns.h), in bytes. O(log(groups)).
class Turns {
 public:
  bool IsEmpty() const { return order_.empty(); }
  void Push(uint64_t group, Job job) {
    Group& its = groups_[group];
    if (its.jobs.empty()) order_.insert({its.served = level_, group});
    its.jobs.push_back(std::move(job));
  }
  Job Pop() {
    const auto [served, group] = *order_.begin();
    order_.erase(order_.begin());
    level_ = served;
    const auto found = groups_.find(group);
    Group& its = found->second;
    Job job = std::move(its.jobs.front());
    its.jobs.pop_front();
    its.served += job.bytes;
    if (its.jobs.empty()) {
      groups_.erase(found);
    } else {
      order_.insert({its.served, group});
    }
    return job;
  }

 private:
  struct Group {
    std::deque<Job> jobs;
    int64_t served = 0;  // bytes, and those of others before it came
  };
  std::unordered_map<uint64_t, Group> groups_;         // with jobs
  std::set<std::pair<int64_t, uint64_t>> order_ = {};  // of these, by what they were given
  int64_t level_ = 0;  // what the group had been given that was served last
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
      (bytes > kLong ? long_ : short_)
          .Push(group, {std::move(work), loop, std::move(then), static_cast<int64_t>(bytes)});
    }
    added_.notify_all();  // the first one may not take a long one
  }

 private:
  void Work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    // True also when there is work left after a stop.
    while (added_.wait(lock, stop, [this] { return !short_.IsEmpty() || MayTakeLong(); }) &&
           !stop.stop_requested()) {
      const bool is_long = short_.IsEmpty();
      Job job = (is_long ? long_ : short_).Pop();
      if (is_long) ++long_running_;
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
  Turns short_;
  Turns long_;
  int32_t long_running_ = 0;
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
