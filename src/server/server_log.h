// A server's log: from any thread, a few lines a second.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>

#include "link/log_limit.h"

namespace sluice::server {

class ServerLog {
 public:
  explicit ServerLog(std::function<void(std::string_view)> log) : limit_(std::move(log)) {}

  void Say(std::string_view line) {
    const std::lock_guard lock(mutex_);
    limit_.Say(line);
  }
  // Now and then: logs how many lines were dropped.
  void Tick() {
    const std::lock_guard lock(mutex_);
    limit_.Tick();
  }

 private:
  std::mutex mutex_;
  link::LogLimit limit_;
};

}  // namespace sluice::server
