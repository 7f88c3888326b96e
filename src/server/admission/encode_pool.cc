#include "server/admission/encode_pool.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "support/check.h"

namespace sluice::server {
namespace {

constexpr size_t kLong = size_t{1} << 20;  // bytes, from which on a job is a long one

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
           std::function<void()> then, size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      (bytes > kLong ? long_ : short_).push_back({std::move(work), loop, std::move(then)});
    }
    added_.notify_all();  // the first one may not take a long one
  }

 private:
  struct Job {
    std::function<void()> work;
    boost::asio::any_io_executor loop;
    std::function<void()> then;
  };

  void Work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    // True also when there is work left after a stop.
    while (added_.wait(lock, stop, [this] { return !short_.empty() || MayTakeLong(); }) &&
           !stop.stop_requested()) {
      const bool is_long = short_.empty();
      std::deque<Job>& jobs = is_long ? long_ : short_;
      Job job = std::move(jobs.front());
      jobs.pop_front();
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
  bool MayTakeLong() const { return !long_.empty() && long_running_ < most_long_; }

  std::mutex mutex_;
  std::condition_variable_any added_;
  std::deque<Job> short_;
  std::deque<Job> long_;
  int32_t long_running_ = 0;
  const int32_t most_long_;
  std::vector<std::jthread> threads_;
};

EncodePool::EncodePool(int32_t threads) : impl_(std::make_unique<Impl>(threads)) {}
EncodePool::~EncodePool() = default;

void EncodePool::Run(std::function<void()> work, const boost::asio::any_io_executor& loop,
                     std::function<void()> then, size_t bytes) {
  impl_->Run(std::move(work), loop, std::move(then), bytes);
}

}  // namespace sluice::server
