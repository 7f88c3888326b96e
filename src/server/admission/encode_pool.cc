#include "server/admission/encode_pool.h"

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

class EncodePool::Impl {
 public:
  explicit Impl(int32_t threads) {
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
           std::function<void()> then) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(work), loop, std::move(then)});
    }
    added_.notify_one();
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
    while (added_.wait(lock, stop, [this] { return !jobs_.empty(); }) && !stop.stop_requested()) {
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      try {
        job.work();
      } catch (const std::bad_alloc&) {  // `then` finds no result
      }
      job.work = nullptr;  // what it held is freed here, not on the loop
      if (!stop.stop_requested()) boost::asio::post(job.loop, std::move(job.then));
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any added_;
  std::deque<Job> jobs_;
  std::vector<std::jthread> threads_;
};

EncodePool::EncodePool(int32_t threads) : impl_(std::make_unique<Impl>(threads)) {}
EncodePool::~EncodePool() = default;

void EncodePool::Run(std::function<void()> work, const boost::asio::any_io_executor& loop,
                     std::function<void()> then) {
  impl_->Run(std::move(work), loop, std::move(then));
}

}  // namespace sluice::server
