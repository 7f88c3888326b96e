// The threads of a GrammarService.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/grammar/compile_queue.h"
#include "engine/grammar/live_grammars.h"
#include "engine/grammar/request_grammar.h"
#include "sluice/grammar_service.hpp"

namespace sluice::engine {

// Requests with a mask to fill, the last drawn first: a draw that cannot wait begins at the other
// end and fills its masks itself. Takes no memory.
class FillStack {
 public:
  // Wakes no filler: one that is at work finds it.
  void Add(std::shared_ptr<RequestGrammar> request);
  // How many there are, as long as a filler is idle; else 0.
  int64_t idle_work() const;
  void Wake();
  // Waits for one. Null: it is over.
  std::shared_ptr<RequestGrammar> Await();
  // Null: there is none.
  std::shared_ptr<RequestGrammar> Take();
  void End();

 private:
  std::shared_ptr<RequestGrammar> Pop();

  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::shared_ptr<RequestGrammar> first_;
  int64_t size_ = 0;
  int32_t idle_ = 0;
  bool is_over_ = false;
};

// What something takes, as the last times were. Any thread's; a lost update does no harm.
class UsualTime {
 public:
  explicit UsualTime(int64_t first_ns) : ns_(first_ns) {}
  int64_t ns() const { return ns_.load(std::memory_order_relaxed); }
  void Note(int64_t ns) {
    const int64_t before = this->ns();
    ns_.store(before + (std::min(ns, kMost) - before) / 8, std::memory_order_relaxed);
  }
  // It was not measured for a while, and may be less now.
  void Fade() { ns_.store(ns() - ns() / 1024, std::memory_order_relaxed); }

 private:
  static constexpr int64_t kMost = 200'000;  // more is the time of other threads
  std::atomic<int64_t> ns_;
};

class GrammarWorkers {
 public:
  GrammarWorkers(GrammarCompiler compiler, std::span<const int32_t> stop_tokens, int32_t vocab,
                 const GrammarServiceOptions& options);
  ~GrammarWorkers();

  const GrammarServiceOptions& options() const { return options_; }
  int32_t vocab() const { return vocab_; }
  std::span<const int32_t> stop_tokens() const { return stop_tokens_; }
  LiveGrammars& live() { return live_; }

  void AddFill(std::shared_ptr<RequestGrammar> request) { fills_.Add(std::move(request)); }
  // What was added is filled by a filler; here, where that takes no longer than to wake one.
  void BeginFills();

  // One that is in the cache begins at once, and a filler makes its first mask. Throws Error where
  // it cannot be taken.
  std::shared_ptr<RequestGrammar> Add(int32_t client, const OutputGrammar& grammar,
                                      MaskCounters& counters);

  bool is_compiling();
  // Compilations that have ended.
  int64_t compiled() const { return compiled_.load(std::memory_order_acquire); }
  // Until there are more, or the time is over.
  void AwaitCompiled(int64_t than, std::chrono::nanoseconds time);

  // Requests that were added and are done with.
  int64_t filled() const { return filled_.load(std::memory_order_acquire); }

 private:
  void Compile();
  void RunFills();
  void Fill(RequestGrammar& request);
  void Join();

  GrammarServiceOptions options_;
  int32_t vocab_;
  std::vector<int32_t> stop_tokens_;
  GrammarCompiler compiler_;
  LiveGrammars live_;
  FillStack fills_;
  UsualTime fill_time_{1'000};
  UsualTime wake_time_{5'000};
  std::atomic<int64_t> filled_ = 0;

  std::mutex mutex_;  // of what follows
  std::condition_variable may_begin_;
  std::condition_variable has_compiled_;
  CompileQueue jobs_;
  bool is_over_ = false;
  std::atomic<int64_t> compiled_ = 0;

  std::vector<std::thread> threads_;  // last: they use what stands above
};

}  // namespace sluice::engine
