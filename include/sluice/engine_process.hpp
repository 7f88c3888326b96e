// An engine as a child process, watched: it ends with its parent, and its end is seen at once.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

namespace sluice {

class EngineProcess {
 public:
  // Starts `command`, a program and its arguments, and reads the endpoint that it prints on its
  // standard output as one line, "listening on ENDPOINT". Throws Error with kUnavailable and the
  // last lines of its standard error when it ends before that, `timeout` is over or a stop is
  // requested. Starts one thread, which passes on to this process's standard error whatever else it
  // prints, and drops what that does not take at once.
  //
  // The process has a group of its own (an interrupt from the terminal is for the frontend alone),
  // standard input that is empty, and nothing else that is open here.
  explicit EngineProcess(std::span<const std::string> command,
                         std::chrono::milliseconds timeout = std::chrono::seconds(120),
                         const std::stop_token& stop = {});
  // Signals its group to end, and kills it after two seconds. A process that was forked off later
  // has a copy without effect on the engine: this closes its descriptors there.
  ~EngineProcess();
  EngineProcess(EngineProcess&&) noexcept;
  EngineProcess& operator=(EngineProcess&&) noexcept;

  const std::string& endpoint() const;
  int pid() const;
  int pidfd() const;  // readable when it has ended
  // "exit status 1", "signal 9 (Killed)", "status unknown" when another part of the process has
  // waited for it; nothing while it runs.
  std::optional<std::string> Ended();

 private:
  class Impl;
  struct End {
    void operator()(Impl* impl) const noexcept;
  };
  std::unique_ptr<Impl, End> impl_;
};

}  // namespace sluice
