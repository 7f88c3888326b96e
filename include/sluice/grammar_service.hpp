// What an Engine needs for requests with a grammar: threads that compile grammars and fill the
// masks of draws, so that no other request waits for either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "sluice/grammar.hpp"
#include "sluice/tokenizer.hpp"

namespace sluice {

namespace engine {
class GrammarWorkers;
}

struct GrammarServiceOptions {
  // Threads that compile, with a lower priority than the caller's. A client has at most one less
  // at work, and so have all long texts together: with three or more, a short grammar of another
  // client waits for none of them.
  int32_t compilers = 3;
  int32_t fillers = 1;            // threads that fill masks
  int32_t max_client_jobs = 256;  // grammars of a client that wait; one more is rejected
  // Of the compiled grammars that requests have, each counted once, apart from the cache: a request
  // with one that is beyond it is rejected.
  size_t live_bytes = size_t{512} << 20;
  GrammarLimits limits = {};
};

// May serve several engines of one vocabulary.
class GrammarService {
 public:
  // Starts its threads. As GrammarCompiler has the arguments.
  GrammarService(const GrammarLibrary& library, const Tokenizer& tokenizer,
                 std::span<const int32_t> stop_tokens, int32_t vocab,
                 const GrammarServiceOptions& options = {});
  ~GrammarService();  // when the compilations that have begun are done
  GrammarService(const GrammarService&) = delete;
  GrammarService& operator=(const GrammarService&) = delete;

  const GrammarServiceOptions& options() const;
  int32_t vocab() const;
  std::span<const int32_t> stop_tokens() const;

  engine::GrammarWorkers& workers() { return *workers_; }

 private:
  std::unique_ptr<engine::GrammarWorkers> workers_;
};

}  // namespace sluice
