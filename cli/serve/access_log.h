// The file of an access log: lines of many threads, written by a thread of its own, so that a slow
// disk holds up no request.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace sluice::cli {

class AccessLog {
 public:
  // Appends to the file, or writes to standard output where `path` is "-". Throws a
  // std::runtime_error where it cannot be opened. `say` gets what went wrong later, once.
  AccessLog(const std::string& path, std::function<void(std::string_view)> say);
  // Writes what waits.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // From any thread; waits for no disk. Lines that find kMostBytes waiting are dropped.
  void Write(std::string_view line);

  static constexpr size_t kMostBytes = size_t{4} << 20;

 private:
  void Run();
  bool WriteAll(std::string_view bytes) const;

  std::function<void(std::string_view)> say_;
  int file_ = -1;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_;
  int64_t dropped_ = 0;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace sluice::cli
