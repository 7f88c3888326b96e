#include "python/engine/engine_parts.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <future>
#include <stop_token>
#include <utility>

#include "python/errors.h"
#include "python/values/numbers.h"
#include "python/values/objects.h"
#include "sluice/research/cluster_head.hpp"
#include "sluice/version.hpp"

namespace sluice::python {
namespace {

constexpr std::chrono::milliseconds kPollInterval{50};  // how long Ctrl-C may wait

// What is made, without Python's lock, by its own thread: this one checks for signals meanwhile.
EngineParts MakeUnlessInterrupted(const std::function<EngineParts(std::stop_token)>& make) {
  std::stop_source stop;
  std::future<EngineParts> made = std::async(std::launch::async, make, stop.get_token());
  while (made.wait_for(kPollInterval) != std::future_status::ready) {
    const nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() == 0) continue;
    stop.request_stop();
    nb::python_error interrupted;
    const nb::gil_scoped_release release;
    made.wait();
    throw interrupted;
  }
  return made.get();
}

}  // namespace

std::vector<std::string> TextsFrom(const char* name, nb::handle texts) {
  if (PyUnicode_Check(texts.ptr())) return {nb::cast<std::string>(texts)};
  if (!PyList_Check(texts.ptr()) && !PyTuple_Check(texts.ptr())) {
    ThrowType(name, Describe(texts), "a str, or a list of them");
  }
  std::vector<std::string> result;
  for (const nb::handle text : texts) {
    if (!PyUnicode_Check(text.ptr())) ThrowType(name, Describe(text), "a str, or a list of them");
    result.push_back(nb::cast<std::string>(text));
  }
  return result;
}

std::optional<ModelText> ModelTextFrom(nb::handle tokenizer) {
  if (nb::isinstance<Tokenizer>(tokenizer)) return std::nullopt;
  const std::string path = PathFrom(tokenizer);
  const nb::gil_scoped_release release;
  if (!std::filesystem::is_directory(path)) return std::nullopt;
  return ModelText::Open(path);
}

Tokenizer TokenizerFrom(nb::handle tokenizer) {
  if (const auto* const known = ObjectIn<Tokenizer>(tokenizer)) return *known;
  std::string path = PathFrom(tokenizer);
  const nb::gil_scoped_release release;
  if (std::filesystem::is_directory(path)) {
    const bool is_json = std::filesystem::exists(path + "/tokenizer.json");
    path += is_json ? "/tokenizer.json" : "/tokenizer.model";
  }
  return Tokenizer::FromFile(path);
}

SamplingParams StartingParamsFrom(nb::handle tokenizer, ParamDefaults defaults) {
  if (nb::isinstance<Tokenizer>(tokenizer)) return {};
  const std::string path = PathFrom(tokenizer);
  const nb::gil_scoped_release release;
  return StartingParams(OpenGenerationConfig(path), defaults);
}

std::chrono::nanoseconds DurationFrom(const char* name, nb::handle seconds) {
  constexpr double kMost = 1e9;
  const double given = GetReal(name, seconds);
  if (!(given >= 0)) ThrowValue(name, Describe(seconds), "at least 0 seconds");
  return std::chrono::nanoseconds(static_cast<int64_t>(std::min(given, kMost) * 1e9));
}

EngineParts MakeLocalParts(const LocalParts& parts) {
  EngineParts made;
  made.checkpoint =
      std::make_unique<Checkpoint>(Checkpoint::Open(parts.directory, {}, parts.model.parallel));
  const Checkpoint& checkpoint = *made.checkpoint;
  ModelRunnerOptions model = parts.model;
  made.defaults = StartingParams(checkpoint.generation_config(), parts.defaults);
  model.planes = HeadPlanesFor(parts.head, checkpoint, made.defaults, {}, {}, model.parallel);
  if (parts.head == HeadChoice::kClusters) {
    const DenseHead& head = checkpoint.head();
    const std::vector<int32_t> fine =
        research::FineTokens(checkpoint.tokenizer(), head.weight.rows);
    model.top_k_head = std::make_shared<research::ClusterHead>(
        head,
        research::HeadClusters::Build(head, research::WithFineTokens({}, fine, head.weight.rows),
                                      model.parallel),
        research::ClusterBudget{}, model.backend);
  }
  made.model = std::make_unique<ModelRunner>(checkpoint, model);
  StepRunner* runner = made.model.get();
  if (parts.engine.steps_in_flight > 0) {
    made.thread = std::make_unique<RunnerThread>(*runner);
    runner = made.thread.get();
  }
  EngineOptions options = parts.engine;
  if (parts.grammars.has_value() && !checkpoint.end_tokens().empty()) {
    made.grammars = std::make_unique<GrammarService>(*parts.grammars, checkpoint.tokenizer(),
                                                     checkpoint.end_tokens(),
                                                     static_cast<int32_t>(checkpoint.vocab()));
    options.grammars = made.grammars.get();
  }
  made.engine = std::make_unique<Engine>(*runner, checkpoint.tokenizer(), options);
  EngineInfo info;
  const std::filesystem::path directory = std::filesystem::path(parts.directory).lexically_normal();
  info.model = (directory.has_filename() ? directory : directory.parent_path()).filename();
  info.version = kVersionString;
  info.end_tokens.assign(checkpoint.end_tokens().begin(), checkpoint.end_tokens().end());
  info.has_text = true;
  info.has_grammars = made.grammars != nullptr;
  made.client =
      MakeLocalClient(*made.engine, std::move(info), checkpoint.tokenizer(), parts.client);
  return made;
}

EngineParts MakeConnectedParts(const std::vector<std::string>& endpoints,
                               const Tokenizer& tokenizer, const RemoteClientOptions& options,
                               const SamplingParams& defaults) {
  return MakeUnlessInterrupted([&](std::stop_token stop) {
    RemoteClientOptions stoppable = options;
    stoppable.stop = std::move(stop);
    EngineParts made;
    made.client = ConnectClient(endpoints, tokenizer, stoppable);
    made.defaults = defaults;
    return made;
  });
}

EngineParts MakeSpawnedParts(const std::vector<std::string>& command,
                             std::chrono::milliseconds start_timeout, const Tokenizer& tokenizer,
                             const RemoteClientOptions& options, const SamplingParams& defaults) {
  return MakeUnlessInterrupted([&](std::stop_token stop) {
    EngineParts made;
    made.process = std::make_unique<EngineProcess>(command, start_timeout, stop);
    const std::vector<std::string> endpoints = {made.process->endpoint()};
    RemoteClientOptions stoppable = options;
    stoppable.stop = std::move(stop);
    made.client = ConnectClient(endpoints, tokenizer, stoppable);
    made.defaults = defaults;
    return made;
  });
}

}  // namespace sluice::python
