// The model that a command works with: a folder, or the built-in one.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/flags/row_flags.h"
#include "cli/progress_line.h"
#include "sluice/checkpoint.hpp"
#include "support/thread_pool.h"

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// What the built-in model is, after "is": a test compares the figure with the model.
inline constexpr const char* kBuiltInModel =
    "a story model of 12.6M parameters, to try the machinery";

struct ModelSource {
  std::string directory;  // empty: the built-in model
  WeightFormat weights = WeightFormat::kAsStored;
  ParamDefaults defaults = ParamDefaults::kModel;
  int threads = 0;  // 0: by the size of the model

  std::string Name() const { return directory.empty() ? "default" : directory; }
  // Its name for other machines, which have other folders: the last folder's.
  std::string ShortName() const;
};

// --model, --weights and --threads, which may have another name. on_model runs for the built-in
// model and again for --model, each time before the flags that are added later.
void AddModelFlags(CLI::App& command, ModelSource& source,
                   const std::function<void()>& on_model = {},
                   const std::string& threads_flag = "--threads");

// --generation-config, for commands that sample; after AddModelFlags, with the same on_model.
void AddParamDefaultsFlag(CLI::App& command, ModelSource& source,
                          const std::function<void()>& on_model = {});

// Where parameters start: what the authors of the model say about sampling, unless
// --generation-config says otherwise.
SamplingParams StartingParamsOf(const ModelSource& source);

// Without its weights.
ModelText OpenModelText(const ModelSource& source);

int Cores();

// Threads for this model. One for a small one: a step of 2 ms has hundreds of parallel loops, and
// waking a thread for each costs more than the loop. All cores from 64 MiB of weights.
int ThreadsFor(const ModelSource& source);

Checkpoint OpenModel(const ModelSource& source, const ParallelFor& parallel,
                     ProgressLine& progress);

}  // namespace sluice::cli
