// What a client of engines stands on, and how each kind of it is made.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sluice/checkpoint.hpp"
#include "sluice/client.hpp"
#include "sluice/engine.hpp"
#include "sluice/engine_process.hpp"
#include "sluice/generator.hpp"
#include "sluice/grammar_service.hpp"
#include "sluice/model_runner.hpp"
#include "sluice/model_text.hpp"
#include "sluice/runner_thread.hpp"

namespace sluice::python {

namespace nb = nanobind;

// Each uses those above it: never assigned to where it is not empty. Made and destroyed without
// Python's lock.
struct EngineParts {
  std::unique_ptr<Checkpoint> checkpoint;
  std::unique_ptr<ModelRunner> model;
  std::unique_ptr<RunnerThread> thread;      // with steps in flight
  std::unique_ptr<GrammarService> grammars;  // where the grammar engine is found
  std::unique_ptr<Engine> engine;
  std::unique_ptr<EngineProcess> process;
  std::unique_ptr<Client> client;
  SamplingParams defaults = {};  // of requests
};

struct LocalParts {
  std::string directory;
  ModelRunnerOptions model;
  HeadChoice head = HeadChoice::kAuto;
  EngineOptions engine;
  LocalClientOptions client;
  std::optional<GrammarLibrary> grammars;
  ParamDefaults defaults = ParamDefaults::kModel;
};

// A str, or a sequence of them.
std::vector<std::string> TextsFrom(const char* name, nb::handle texts);
// A sluice.Tokenizer, or the path of its file or of the folder that it lies in.
Tokenizer TokenizerFrom(nb::handle tokenizer);
// What the files of a model's folder say, where that is what it is.
std::optional<ModelText> ModelTextFrom(nb::handle tokenizer);
// Where parameters start: the generation_config.json of a model's folder, where `tokenizer` is one.
SamplingParams StartingParamsFrom(nb::handle tokenizer, ParamDefaults defaults);
// Seconds, from 0 on.
std::chrono::nanoseconds DurationFrom(const char* name, nb::handle seconds);

EngineParts MakeLocalParts(const LocalParts& parts);
// Both end with what a signal throws in Python.
EngineParts MakeConnectedParts(const std::vector<std::string>& endpoints,
                               const Tokenizer& tokenizer, const RemoteClientOptions& options,
                               const SamplingParams& defaults);
EngineParts MakeSpawnedParts(const std::vector<std::string>& command,
                             std::chrono::milliseconds start_timeout, const Tokenizer& tokenizer,
                             const RemoteClientOptions& options, const SamplingParams& defaults);

}  // namespace sluice::python
