// The threads of a GrammarService.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/grammar/compile_queue.h"
#include "engine/grammar/request_grammar.h"
#include "sluice/grammar_service.hpp"

namespace sluice::engine {

// Requests with a mask to fill, the first drawn first. Takes no memory.
class FillQueue {
 public:
  void Post(std::shared_ptr<RequestGrammar> request);
  // Null: it is over.
  std::shared_ptr<RequestGrammar> Take();
  void End();

 private:
  std::mutex mutex_;
  std::condition_variable posted_;
  std::shared_ptr<RequestGrammar> first_;
  RequestGrammar* last_ = nullptr;
  int32_t idle_ = 0;
  bool is_over_ = false;
};

class GrammarWorkers {
 public:
  GrammarWorkers(GrammarCompiler compiler, std::span<const int32_t> stop_tokens, int32_t vocab,
                 const GrammarServiceOptions& options);
  ~GrammarWorkers();

  const GrammarServiceOptions& options() const { return options_; }
  int32_t vocab() const { return vocab_; }
  std::span<const int32_t> stop_tokens() const { return stop_tokens_; }
  FillQueue& fills() { return fills_; }

  // One that is in the cache begins at once, and a filler makes its first mask. Throws Error where
  // it cannot be taken.
  std::shared_ptr<RequestGrammar> Add(int32_t client, const OutputGrammar& grammar,
                                      MaskCounters& counters);

  // Compilations that have ended.
  int64_t compiled() const { return compiled_.load(std::memory_order_acquire); }
  // Until there are more, or the time is over.
  void AwaitCompiled(int64_t than, std::chrono::nanoseconds time);

  // Requests that the fillers have taken and are done with.
  int64_t filled() const { return filled_.load(std::memory_order_acquire); }

 private:
  void Compile();
  void RunFills();
  void Join();

  GrammarServiceOptions options_;
  int32_t vocab_;
  std::vector<int32_t> stop_tokens_;
  GrammarCompiler compiler_;
  FillQueue fills_;
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
