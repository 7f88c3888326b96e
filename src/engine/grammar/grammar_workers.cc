#include "engine/grammar/grammar_workers.h"

#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <optional>
#include <utility>

#include "engine/clock.h"
#include "support/check.h"

namespace sluice::engine {
namespace {

constexpr int kLowPriority = 10;

const GrammarServiceOptions& Checked(const GrammarServiceOptions& options) {
  CheckInRange("compilers", options.compilers, 1, 256);
  CheckInRange("fillers", options.fillers, 1, 256);
  CheckInRange("max_client_jobs", options.max_client_jobs, 1, 1 << 20);
  return options;
}

}  // namespace

void FillStack::Add(std::shared_ptr<RequestGrammar> request) {
  const std::lock_guard lock(mutex_);
  if (request->is_queued_ || is_over_) return;  // what was drawn before has been done by the draw
  request->is_queued_ = true;
  request->next_ = std::move(first_);
  first_ = std::move(request);
  ++size_;
}

int64_t FillStack::idle_work() const {
  const std::lock_guard lock(mutex_);
  return idle_ > 0 ? size_ : 0;
}

void FillStack::Wake() { posted_.notify_all(); }

std::shared_ptr<RequestGrammar> FillStack::Pop() {
  std::shared_ptr<RequestGrammar> taken = std::move(first_);
  first_ = std::move(taken->next_);
  taken->is_queued_ = false;
  --size_;
  return taken;
}

std::shared_ptr<RequestGrammar> FillStack::Await() {
  std::unique_lock lock(mutex_);
  ++idle_;
  posted_.wait(lock, [this] { return is_over_ || first_ != nullptr; });
  --idle_;
  return is_over_ ? nullptr : Pop();
}

std::shared_ptr<RequestGrammar> FillStack::Take() {
  const std::lock_guard lock(mutex_);
  return first_ == nullptr ? nullptr : Pop();
}

void FillStack::End() {
  std::shared_ptr<RequestGrammar> rest;
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    rest = std::move(first_);
  }
  posted_.notify_all();
  while (rest != nullptr) rest = std::exchange(rest->next_, nullptr);
}

GrammarWorkers::GrammarWorkers(GrammarCompiler compiler, std::span<const int32_t> stop_tokens,
                               int32_t vocab, const GrammarServiceOptions& options)
    : options_(Checked(options)),
      vocab_(vocab),
      stop_tokens_(stop_tokens.begin(), stop_tokens.end()),
      compiler_(std::move(compiler)),
      live_(options.live_bytes),
      jobs_(options.compilers) {
  // A signal is for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int32_t i = 0; i < options_.compilers; ++i) {
      threads_.emplace_back([this] { Compile(); });
    }
    for (int32_t i = 0; i < options_.fillers; ++i) {
      threads_.emplace_back([this] { RunFills(); });
    }
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    Join();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

GrammarWorkers::~GrammarWorkers() { Join(); }

void GrammarWorkers::Join() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  may_begin_.notify_all();
  fills_.End();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::shared_ptr<RequestGrammar> GrammarWorkers::Add(int32_t client, const OutputGrammar& grammar,
                                                    MaskCounters& counters) {
  const std::string name(Name(grammar.kind));
  CheckInRange(name + ".size()", static_cast<int64_t>(grammar.text.size()), 0,
               static_cast<int64_t>(options_.limits.text_bytes));
  auto request = std::make_shared<RequestGrammar>(*this, counters);
  const std::optional<Grammar> cached = compiler_.Find(grammar.kind, grammar.text, grammar.options);
  if (cached.has_value()) {
    request->BeginUnfilled(*cached);
    AddFill(request);
    BeginFills();
    return request;
  }
  {
    const std::lock_guard lock(mutex_);
    if (!jobs_.Add({&counters, client}, grammar, request, options_.max_client_jobs)) {
      throw Error(ErrorCode::kExhausted, "grammars of one client that are not yet compiled",
                  ToText(int64_t{options_.max_client_jobs} + 1),
                  RangeText(0, options_.max_client_jobs));
    }
  }
  may_begin_.notify_one();
  return request;
}

bool GrammarWorkers::is_compiling() {
  const std::lock_guard lock(mutex_);
  return jobs_.is_running();
}

void GrammarWorkers::AwaitCompiled(int64_t than, std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  has_compiled_.wait_for(lock, time, [&] { return compiled_.load() > than; });
}

void GrammarWorkers::Compile() {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLowPriority);
  std::unique_lock lock(mutex_);
  while (true) {
    CompileJob* job = nullptr;
    may_begin_.wait(lock, [&] { return is_over_ || (job = jobs_.Begin()) != nullptr; });
    if (is_over_) return;
    lock.unlock();
    std::optional<Grammar> grammar;
    std::exception_ptr error;
    try {
      grammar = compiler_.Compile(job->grammar.kind, job->grammar.text, job->grammar.options);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    const auto requests = jobs_.End(job);
    lock.unlock();
    for (const std::weak_ptr<RequestGrammar>& weak : requests) {
      const std::shared_ptr<RequestGrammar> request = weak.lock();
      if (request == nullptr) continue;
      try {
        if (error != nullptr) std::rethrow_exception(error);
        request->Begin(*grammar);
      } catch (const Error& thrown) {
        const bool is_its = thrown.code() != ErrorCode::kExhausted;
        request->Fail(thrown.code(), thrown.what(), is_its ? thrown.parameter() : "");
      } catch (...) {
        request->Fail(ErrorCode::kExhausted, "no memory for its grammar", "");
      }
    }
    lock.lock();
    compiled_.fetch_add(1, std::memory_order_release);
    has_compiled_.notify_all();
    may_begin_.notify_all();  // the limits of its client and of long texts have room again
  }
}

// To wake a filler takes a system call, and often longer than the fills of a few rows.
void GrammarWorkers::BeginFills() {
  const int64_t count = fills_.idle_work();
  if (count == 0) return;
  if (count * fill_time_.ns() <= wake_time_.ns()) {
    while (const std::shared_ptr<RequestGrammar> request = fills_.Take()) Fill(*request);
    wake_time_.Fade();
    return;
  }
  Clock clock;
  fills_.Wake();
  wake_time_.Note(clock.Lap());
}

void GrammarWorkers::RunFills() {
  while (const std::shared_ptr<RequestGrammar> request = fills_.Await()) Fill(*request);
}

void GrammarWorkers::Fill(RequestGrammar& request) {
  Clock clock;
  request.Fill();
  fill_time_.Note(clock.Lap());
  filled_.fetch_add(1, std::memory_order_release);
}

}  // namespace sluice::engine
