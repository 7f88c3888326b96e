// A few threads for work that would hold up the streams of a loop: parsing and encoding long
// prompts. The longest ones leave a thread free, where there are several, and go after all others:
// a prompt of some pages does not wait for one of megabytes. Among the others, and among the
// longest ones, the next job is of the group that has been given the fewest bytes.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace sluice::server {

class EncodePool {
 public:
  explicit EncodePool(int32_t threads);
  // Waits for what runs; the rest is dropped, and `then` of neither is called. Loops outlive it.
  ~EncodePool();

  // `work`, which reads `bytes` bytes of this group (Exchange::group), runs on a thread of the
  // pool, and then `then` on the loop's. `work` throws nothing but std::bad_alloc, after which
  // `then` runs as well.
  void Run(std::function<void()> work, const boost::asio::any_io_executor& loop,
           std::function<void()> then, size_t bytes = 0, uint64_t group = 0);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::server
