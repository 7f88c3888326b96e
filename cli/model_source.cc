#include "cli/model_source.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <system_error>
#include <thread>

#include "sluice/error.hpp"
#ifdef SLUICE_HAS_DEFAULT_MODEL
#include "sluice/default_model.hpp"
#endif

namespace sluice::cli {
namespace {

CheckpointFiles InsideFiles() {
#ifdef SLUICE_HAS_DEFAULT_MODEL
  return DefaultModelFiles();
#else
  throw Error(ErrorCode::kUnavailable, "model", "none",
              "a folder, because this build has no model inside: --model DIR");
#endif
}

uintmax_t WeightBytes(const ModelSource& source) {
  uintmax_t bytes = 0;
  if (source.directory.empty()) {
    for (const auto& file : InsideFiles().safetensors) bytes += file.size();
    return bytes;
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(source.directory, error)) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size(error);
  }
  return bytes;
}

}  // namespace

std::string ModelSource::ShortName() const {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(Name(), error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "folder/"
  return path.has_filename() ? path.filename().string() : Name();
}

void AddModelFlags(CLI::App& command, ModelSource& source, const std::function<void()>& on_model,
                   const std::string& threads_flag) {
  const auto told = [on_model] {
    if (on_model) on_model();
  };
  // Before the command's flags, for the model inside; and again when another one is named.
  command.preparse_callback([told](size_t) { told(); });
  command
      .add_option_function<std::string>(
          "--model",
          [&source, told](const std::string& directory) {
            source.directory = directory;
            told();
          },
          "folder of a model, as Hugging Face stores it; without it, the model inside")
      ->type_name("DIR")
      ->envname("SLUICE_MODEL");
  command
      .add_option_function<std::string>(
          "--weights",
          [&source](const std::string& name) {
            source.weights = name == "int8" ? WeightFormat::kInt8 : WeightFormat::kAsStored;
          },
          "int8: matrices are rounded to eight bits when they are loaded")
      ->default_str("as-stored")
      ->check(CLI::IsMember(std::vector<std::string>{"as-stored", "int8"}))
      ->type_name("NAME");
  command
      .add_option(threads_flag, source.threads,
                  "threads that share a step; 0 is one for a small model, else every core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

void AddParamDefaultsFlag(CLI::App& command, ModelSource& source,
                          const std::function<void()>& on_model) {
  command
      .add_option_function<std::string>(
          "--generation-config",
          [&source, on_model](const std::string& name) {
            source.defaults = ParamDefaultsByName(name);
            if (on_model) on_model();
          },
          "where sampling parameters start: auto is the model's generation_config.json, vllm is "
          "their own defaults")
      ->default_str("auto")
      ->check(CLI::IsMember(std::vector<std::string>{"auto", "vllm"}))
      ->type_name("NAME");
}

SamplingParams StartingParamsOf(const ModelSource& source) {
  if (!source.directory.empty()) {
    return StartingParams(OpenGenerationConfig(source.directory), source.defaults);
  }
#ifdef SLUICE_HAS_DEFAULT_MODEL
  return StartingParams(ParseGenerationConfig(InsideFiles().text.generation_config),
                        source.defaults);
#else
  return {};
#endif
}

ModelText OpenModelText(const ModelSource& source) {
  const ModelText text = source.directory.empty() ? ModelText::FromFiles(InsideFiles().text)
                                                  : ModelText::Open(source.directory);
  return text.WithParamDefaults(source.defaults);
}

int Cores() { return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1024u)); }

int ThreadsFor(const ModelSource& source) {
  if (source.threads > 0) return source.threads;
  constexpr uintmax_t kSmall = uintmax_t{64} << 20;
  return WeightBytes(source) < kSmall ? 1 : Cores();
}

Checkpoint OpenModel(const ModelSource& source, const ParallelFor& parallel,
                     ProgressLine& progress) {
  const ModelOptions options{.weights = source.weights,
                             .progress =
                                 [](void* context, size_t bytes, size_t total) {
                                   static_cast<ProgressLine*>(context)->Show(
                                       "loading", static_cast<int64_t>(bytes),
                                       static_cast<int64_t>(total));
                                 },
                             .progress_context = &progress};
  Checkpoint checkpoint = source.directory.empty()
                              ? Checkpoint::FromFiles(InsideFiles(), options, parallel)
                              : Checkpoint::Open(source.directory, options, parallel);
  progress.Clear();
  return checkpoint;
}

}  // namespace sluice::cli
