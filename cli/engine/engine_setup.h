// An engine over a model, as the command line describes it: for sluice engine, which serves it, and
// for commands that run one of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/generate/model_source.h"
#include "cli/progress_line.h"
#include "sluice/engine.hpp"
#include "sluice/grammar_service.hpp"
#include "sluice/model_runner.hpp"
#include "sluice/runner_thread.hpp"
#include "support/thread_pool.h"

namespace sluice::cli {

struct EngineSetup {
  ModelSource source;
  Backend backend = Backend::kAuto;
  HeadChoice head = HeadChoice::kAuto;
  std::string head_file;  // of clusters; empty: they are built
  int32_t max_requests = 64;
  int64_t step_tokens = 0;
  int64_t cache_tokens = 0;
  int32_t steps_in_flight = 0;
  int32_t max_logprobs = 20;
  int32_t max_prefixes = 1024;
  int32_t draft_tokens = 0;
  std::string grammar_library;  // empty: see FindGrammarLibrary
  bool is_quiet = false;
  bool relays_progress = false;  // sluice serve shows it
};

// Two flags have other names where a command has its own of these.
struct EngineFlagNames {
  std::string threads = "--threads";
  std::string max_requests = "--max-requests";
};
void AddEngineSetupFlags(CLI::App& command, EngineSetup& setup, const EngineFlagNames& names = {});
inline constexpr const char* kRelayProgressFlag = "--relay-progress";
// --steps-in-flight, which every engine has.
void AddStepsInFlightFlag(CLI::App& command, int32_t& steps_in_flight);

// Null where no library is named and none is installed, or without tokens that end an output.
std::unique_ptr<GrammarService> MakeGrammarService(const std::string& library,
                                                   const Tokenizer& tokenizer,
                                                   std::span<const int32_t> end_tokens,
                                                   int64_t vocab);

class ModelEngine {
 public:
  // Loads the model and takes the memory of its cache. With a step in flight the model has a thread
  // of its own.
  explicit ModelEngine(const EngineSetup& setup);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  Engine& engine() { return *engine_; }
  EngineInfo Info() const;
  int threads() const { return pool_threads_; }

 private:
  EngineSetup setup_;
  ProgressLine progress_;
  int pool_threads_;
  ThreadPool pool_;
  Checkpoint checkpoint_;
  std::unique_ptr<GrammarService> grammars_;  // null without the library
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<RunnerThread> thread_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace sluice::cli
