#include "bench/serve/served_mock.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <stop_token>
#include <thread>

#include "bench/serve/engine_harness.h"
#include "sluice/server.hpp"

namespace sluice::bench {
namespace {

cpu_set_t Only(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processor), &set);
  return set;
}

// Writes what a script's runner does to the log.
class LoggedRunner final : public StepRunner {
 public:
  // first_wait: before its first step, so that engines take theirs at different times.
  LoggedRunner(ScriptOptions script, StepLog& log, std::chrono::nanoseconds first_wait)
      : runner_(std::move(script)),
        log_(log),
        first_wait_(first_wait),
        request_of_slot_(static_cast<size_t>(runner_.info().max_requests), -1) {}

  const RunnerInfo& info() const override { return runner_.info(); }

  void Launch(const StepPlan& plan) override {
    if (launched_ == 0) std::this_thread::sleep_for(first_wait_);
    for (const int32_t slot : plan.ended) request_of_slot_[static_cast<size_t>(slot)] = -1;
    for (const RunnerRequest& request : plan.begun) {
      const int64_t number = request.prompt[0] % StepLog::kRequests;
      request_of_slot_[static_cast<size_t>(request.slot)] = number;
      log_.behind_first_step[number] = 0;
    }
    running_ += std::ssize(plan.begun) - std::ssize(plan.ended);
    log_.running = running_;
    for (const StepRow& row : plan.rows) {
      const int64_t number = request_of_slot_[static_cast<size_t>(row.slot)];
      if (row.samples && number >= 0 && log_.behind_first_step[number] == 0) {
        log_.behind_first_step[number] = static_cast<int32_t>(launched_ + 1);
      }
    }
    ++launched_;
    runner_.Launch(plan);
  }

  const StepResults& Await() override {
    const StepResults& results = runner_.Await();
    log_.done_ns[log_.steps % StepLog::kSteps] = MonotonicNs();
    ++log_.steps;
    return results;
  }

 private:
  ScriptRunner runner_;
  StepLog& log_;
  std::chrono::nanoseconds first_wait_;
  std::vector<int64_t> request_of_slot_;
  int64_t launched_ = 0;
  int64_t running_ = 0;
};

// Runs `act` in a child that ends with this process.
template <typename Act>
pid_t Fork(int processor, const Act& act) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error(std::strerror(errno));
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  signal(SIGINT, SIG_IGN);
  PinToProcessor(processor);
  try {
    act();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sluice: %s\n", error.what());
    _exit(1);
  }
  _exit(0);
}

void Kill(pid_t& child) {
  if (child < 0) return;
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  child = -1;
}

}  // namespace

void PinToProcessor(int processor) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  const cpu_set_t set = Only(processor);
  sched_setaffinity(0, sizeof set, &set);
}

ScopedPin::ScopedPin(int processor) {
  sched_getaffinity(0, sizeof before_, &before_);
  PinToProcessor(processor);
}
ScopedPin::~ScopedPin() { sched_setaffinity(0, sizeof before_, &before_); }

int64_t StepLog::TokenNs(int64_t request, int64_t token) const {
  const int64_t first = behind_first_step[request % kRequests] - 1;
  if (first < 0 || first + token >= steps) return 0;
  return done_ns[(first + token) % kSteps];
}

ServedMock::ServedMock(const MockOptions& options)
    : options_(options), engines_(static_cast<size_t>(options.engines), -1) {
  void* const shared = mmap(nullptr, engines_.size() * sizeof(StepLog), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
  logs_ = {static_cast<StepLog*>(shared), engines_.size()};
  for (size_t i = 0; i < engines_.size(); ++i) {
    endpoints_of_engines_.push_back("ipc://@sluice-bench-serve-" + std::to_string(getpid()) + "-" +
                                    std::to_string(i));
  }
  StartEngines();
  StartServer();
}

ServedMock::~ServedMock() {
  Kill(server_);
  KillEngines();
  munmap(logs_.data(), logs_.size_bytes());
}

int64_t ServedMock::running() const {
  int64_t running = 0;
  for (const StepLog& log : logs_) running += log.running;
  return running;
}

int64_t ServedMock::TokenNs(int64_t request, int64_t token) const {
  for (const StepLog& log : logs_) {
    if (const int64_t ns = log.TokenNs(request, token); ns > 0) return ns;
  }
  return 0;
}

void ServedMock::StartEngines() {
  for (size_t i = 0; i < engines_.size(); ++i) StartEngine(i);
}

void ServedMock::StartEngine(size_t number) {
  StepLog& log = logs_[number];
  log.steps = 0;
  log.running = 0;
  engines_[number] = Fork(kClientProcessor, [this, number, &log] {
    const Tokenizer& tokenizer = options_.text.tokenizer();
    LoggedRunner runner(Script(tokenizer, options_.requests, options_.step_time), log,
                        options_.step_time * number / options_.engines);
    Engine engine(runner, tokenizer, {.steps_in_flight = 1});
    EngineServer server(engine,
                        {.model = "script",
                         .version = std::string(kVersionString),
                         .tokenizer_hash = TokenizerHash(tokenizer),
                         .has_text = true},
                        {.listen = endpoints_of_engines_[number]});
    server.Run({});
  });
}

void ServedMock::StartServer() {
  std::array<int, 2> ready;
  if (pipe(ready.data()) != 0) throw std::runtime_error(std::strerror(errno));
  server_ = Fork(kServerProcessor, [&] {
    close(ready[0]);
    Server server(options_.text, {.port = 0,
                                  .engines = endpoints_of_engines_,
                                  .threads = options_.threads,
                                  .max_requests = options_.engines * options_.requests});
    const uint16_t port = server.port();
    if (write(ready[1], &port, sizeof port) != sizeof port) _exit(1);
    server.Run({}, {});
  });
  close(ready[1]);
  const ssize_t size = read(ready[0], &endpoint_.port, sizeof endpoint_.port);
  close(ready[0]);
  if (size != sizeof endpoint_.port) throw std::runtime_error("the server did not come up");
}

void ServedMock::KillEngines() {
  for (pid_t& engine : engines_) Kill(engine);
}

double ServedMock::ServerCpuSeconds() const {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(server_, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

int64_t ServedMock::ServerResidentBytes() const {
  std::ifstream file("/proc/" + std::to_string(server_) + "/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace sluice::bench
