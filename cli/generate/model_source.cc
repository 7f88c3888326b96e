#include "cli/generate/model_source.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <system_error>
#include <thread>

#include "cli/flags/choices.h"
#include "cli/usage_error.h"
#include "sluice/error.hpp"
#ifdef SLUICE_HAS_DEFAULT_MODEL
#include "sluice/default_model.hpp"
#endif

namespace sluice::cli {
namespace {

CheckpointFiles BuiltInFiles() {
#ifdef SLUICE_HAS_DEFAULT_MODEL
  return DefaultModelFiles();
#else
  throw Error(ErrorCode::kUnavailable, "--model", "",
              "give the folder of a model; this build has no built-in model");
#endif
}

// "Qwen/Qwen3-0.6B": an owner and a name, and nothing that only a path has.
bool IsHubName(std::string_view text) {
  const size_t slash = text.find('/');
  const bool is_pair = slash != std::string_view::npos && slash > 0 && slash + 1 < text.size() &&
                       text.find('/', slash + 1) == std::string_view::npos;
  return is_pair && text[0] != '.' && text[0] != '~' &&
         std::ranges::all_of(text, [](unsigned char c) {
           return std::isalnum(c) != 0 ||
                  std::string_view("/-_.").find(c) != std::string_view::npos;
         });
}

void CheckFolder(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    std::string text = "no such folder: " + path;
    const size_t slash = path.find('/');
    if (IsHubName(path) && !std::filesystem::exists(path.substr(0, slash), error)) {
      const std::string name = path.substr(slash + 1);
      text += ". Models are read from folders: hf download " + path + " --local-dir " + name +
              ", then --model " + name;
    }
    throw UsageError(text);
  }
  constexpr const char* kModel =
      "; a model is a folder with config.json, *.safetensors and tokenizer.json or tokenizer.model";
  if (status.type() != std::filesystem::file_type::directory && !error) {
    throw UsageError("not a folder: " + path + kModel);
  }
  const std::filesystem::path folder(path);
  if (!std::filesystem::exists(folder / "tokenizer.json", error) &&
      !std::filesystem::exists(folder / "tokenizer.model", error) && !error) {
    throw UsageError("no model in the folder: " + path + kModel);
  }
}

uintmax_t WeightBytes(const ModelSource& source) {
  uintmax_t bytes = 0;
  if (source.directory.empty()) {
    for (const auto& file : BuiltInFiles().safetensors) bytes += file.size();
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
  const auto changed = [on_model] {
    if (on_model) on_model();
  };
  // Before the command's flags, for the built-in model; and again when another one is named.
  command.preparse_callback([changed](size_t) { changed(); });
  command
      .add_option_function<std::string>(
          "--model",
          [&source, changed](const std::string& directory) {
            source.directory = directory;
            changed();
          },
          "the folder of a model as Hugging Face stores it; without it, the built-in model")
      ->type_name("DIR")
      ->envname("SLUICE_MODEL");
  command
      .add_option_function<std::string>(
          "--weights",
          [&source](const std::string& name) {
            source.weights = name == "int8" ? WeightFormat::kInt8 : WeightFormat::kAsStored;
          },
          "how matrices are held in memory; int8 rounds them to eight bits when they are loaded")
      ->default_str("as-stored")
      ->type_name(ChoiceType({"as-stored", "int8"}));
  command
      .add_option(threads_flag, source.threads,
                  "threads that share a step; 0: one for a small model, else every core")
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
          "where sampling parameters start: auto takes the model's generation_config.json, vllm "
          "the defaults of each parameter")
      ->default_str("auto")
      ->type_name(ChoiceType({"auto", "vllm"}));
}

SamplingParams StartingParamsOf(const ModelSource& source) {
  if (!source.directory.empty()) {
    return StartingParams(OpenGenerationConfig(source.directory), source.defaults);
  }
#ifdef SLUICE_HAS_DEFAULT_MODEL
  return StartingParams(ParseGenerationConfig(BuiltInFiles().text.generation_config),
                        source.defaults);
#else
  return {};
#endif
}

ModelText OpenModelText(const ModelSource& source) {
  if (!source.directory.empty()) CheckFolder(source.directory);
  const ModelText text = source.directory.empty() ? ModelText::FromFiles(BuiltInFiles().text)
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
  if (!source.directory.empty()) CheckFolder(source.directory);
  const ModelOptions options{.weights = source.weights,
                             .progress =
                                 [](void* context, size_t bytes, size_t total) {
                                   static_cast<ProgressLine*>(context)->Show(
                                       "loading", static_cast<int64_t>(bytes),
                                       static_cast<int64_t>(total));
                                 },
                             .progress_context = &progress};
  Checkpoint checkpoint = source.directory.empty()
                              ? Checkpoint::FromFiles(BuiltInFiles(), options, parallel)
                              : Checkpoint::Open(source.directory, options, parallel);
  progress.Clear();
  return checkpoint;
}

}  // namespace sluice::cli
