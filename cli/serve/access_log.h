// The file of a log: lines of many threads, written by a thread of its own, so that a slow disk or
// a reader that has stopped holds up no request.
#pragma once

#include <chrono>
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
  // std::runtime_error where it cannot be opened. `say` gets what goes wrong later: the error once
  // for each time that the file is opened, and the number of lines left out once in kBetweenCounts
  // and at the end.
  AccessLog(const std::string& path, std::function<void(std::string_view)> say);
  // Writes to a copy of this descriptor; `name` is what `say` calls it.
  AccessLog(int file, std::string name, std::function<void(std::string_view)> say);
  // Writes what waits, for kLastWrites: a pipe that nothing reads holds up no end.
  ~AccessLog();
  AccessLog(const AccessLog&) = delete;
  AccessLog& operator=(const AccessLog&) = delete;

  // From any thread; waits for no disk. Lines that find kMostBytes waiting are dropped.
  void Write(std::string_view line);

  // Lines that come from now on are of the file that has the path then: what had it was moved away.
  // From any thread.
  void Reopen();

  static constexpr size_t kMostBytes = size_t{4} << 20;
  static constexpr std::chrono::milliseconds kLastWrites{2000};
  static constexpr std::chrono::minutes kBetweenCounts{1};

 private:
  void Begin();
  void Run();
  // Both return how many lines were left out. A file always has whole lines: one that was cut off
  // goes on at the next call, or ends before another file is written. Lines that wait for a reader
  // when the file is to be opened again are of the new one.
  int64_t OpenAgain();
  int64_t WriteLines(std::string lines);
  size_t WriteSome(std::string_view bytes);  // 0: it cannot, and errno says why
  bool EndsLine();                           // without a wait
  void SayLeftOut(bool is_last);
  bool MustGiveUp();
  bool MustReopen();

  const std::string path_;
  const std::string name_ = "the access log";
  const std::function<void(std::string_view)> say_;
  int file_ = -1;
  size_t at_once_ = 0;  // bytes that one call writes without a wait, when it can write at all
  std::string rest_;    // of the line that was cut off
  bool has_failed_ = false;
  int64_t left_out_ = 0;  // lines, and not said yet
  std::chrono::steady_clock::time_point count_at_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string waiting_;
  int64_t dropped_ = 0;
  bool reopens_ = false;
  bool is_over_ = false;
  std::chrono::steady_clock::time_point give_up_at_;  // once it is over
  std::thread thread_;
};

}  // namespace sluice::cli
