#include "link/child_process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <vector>

#include "support/check.h"
#include "support/number.h"
#include "support/system_error.h"

namespace sluice::link {
namespace {

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
};

// Above the standard ones, which may be closed here.
FileDescriptor Raised(int fd) {
  const FileDescriptor low(fd);
  FileDescriptor high(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!high.IsOpen()) ThrowSystemError("pipe");
  return high;
}

Pipe MakePipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) ThrowSystemError("pipe");
  FileDescriptor write(ends[1]);  // should the first one throw
  Pipe made{Raised(ends[0]), FileDescriptor()};
  made.write = Raised(std::exchange(write, FileDescriptor()).get());
  return made;
}

// All signals are blocked while one lives, so that no handler of this process runs in the child.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// By the system call: glibc keeps 32 and 33 for its own and refuses them, but its posix_spawn,
// which make starts processes with, leaves them ignored. SIGKILL and SIGSTOP refuse it, and have no
// need of it.
void ResetSignals() {
  constexpr std::array<uint64_t, 4> kDefault = {};  // the kernel's sigaction: SIG_DFL is zero
  for (int signal = 1; signal < NSIG; ++signal) {
    ::syscall(SYS_rt_sigaction, signal, kDefault.data(), nullptr, sizeof(uint64_t));
  }
}

// Between fork and exec: other threads may hold any lock, so only system calls are made.
[[noreturn]] void BecomeChild(char* const* arguments, pid_t parent, int output, int errors,
                              int failure, int death_signal) {
  // In this order: a parent that ended before the call is seen by the comparison.
  ::prctl(PR_SET_PDEATHSIG, death_signal);
  if (::getppid() != parent) ::_exit(1);
  ::setpgid(0, 0);
  ResetSignals();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = ::open("/dev/null", O_RDWR);
  if (::dup2(nothing, 0) == 0 && ::dup2(output, 1) == 1 && ::dup2(errors, 2) == 2) {
    ::syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);  // an old kernel has none: no harm
    ::execvp(arguments[0], arguments);
  }
  const int error = errno;
  [[maybe_unused]] const ssize_t size = ::write(failure, &error, sizeof error);
  ::_exit(127);
}

void SetNonBlocking(const FileDescriptor& file) {
  ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace

ChildProcess StartChild(std::span<const std::string> command, int death_signal) {
  if (command.empty()) ThrowInvalid("command", "nothing", "a program and its arguments");
  std::vector<char*> arguments;
  for (const std::string& argument : command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));  // exec's type; it writes nothing
  }
  arguments.push_back(nullptr);
  Pipe output = MakePipe();
  Pipe errors = MakePipe();
  Pipe failure = MakePipe();

  ChildProcess child;
  const pid_t parent = ::getpid();
  {
    const NoSignals no_signals;
    child.pid = ::fork();
    if (child.pid == 0) {
      BecomeChild(arguments.data(), parent, output.write.get(), errors.write.get(),
                  failure.write.get(), death_signal);
    }
  }
  if (child.pid < 0) ThrowSystemError("fork");
  failure.write.Close();
  int error = 0;
  ssize_t size = 0;
  do {
    size = ::read(failure.read.get(), &error, sizeof error);  // ends with exec
  } while (size < 0 && errno == EINTR);
  if (size == 0) {
    child.pidfd = FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, child.pid, 0)));
    error = child.pidfd.IsOpen() ? 0 : errno;
  }
  if (error != 0) {
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    ThrowSystemError("command " + command[0], error);
  }
  child.output = std::move(output.read);
  child.errors = std::move(errors.read);
  SetNonBlocking(child.output);
  SetNonBlocking(child.errors);
  return child;
}

std::string EndOfChild(const FileDescriptor& pidfd) {
  pollfd file{pidfd.get(), POLLIN, 0};
  if (::poll(&file, 1, 0) <= 0) return {};
  siginfo_t info = {};
  if (::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return "status unknown";
  }
  if (info.si_code == CLD_EXITED) return "exit status " + Number(info.si_status);
  const char* const name = ::sigdescr_np(info.si_status);
  return "signal " + Number(info.si_status) + " (" + (name == nullptr ? "unknown" : name) + ")";
}

bool SignalGroup(const ChildProcess& child, int signal) {
  siginfo_t info = {};
  if (::waitid(P_PIDFD, static_cast<id_t>(child.pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) !=
          0 &&
      errno == ECHILD) {
    return false;
  }
  ::kill(-child.pid, signal);
  return true;
}

void KillGroup(const ChildProcess& child) {
  if (!SignalGroup(child, SIGKILL)) return;
  siginfo_t info = {};
  const auto pidfd = static_cast<id_t>(child.pidfd.get());
  while (::waitid(P_PIDFD, pidfd, &info, WEXITED) != 0 && errno == EINTR) continue;
}

}  // namespace sluice::link
