// sluice generate: text from a model, as it comes.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "cli/flags/grammar_flags.h"
#include "cli/generate/generation_flags.h"
#include "cli/terminal.h"

namespace sluice::cli {

struct GenerateOptions {
  GenerationOptions generation;
  GrammarFlags grammar;
  bool echoes_prompt = false;
  int64_t show_candidates = 0;
  bool as_json = false;
  bool as_json_lines = false;
  std::string record_path;  // empty: none
#ifdef SLUICE_HAS_LINK
  std::string engine;  // where it is; empty: the model runs here
  StopAt stop_at = StopAt::kEngine;
#endif
};

// Adds the command. `action` becomes what the command line selects.
void AddGenerate(CLI::App& app, std::function<void()>& action);

// Text to `out`, everything else to standard error. Throws Interrupted, when all is said, if a
// signal has ended it.
void RunGenerate(const GenerateOptions& options, std::ostream& out, const Terminal& terminal);

}  // namespace sluice::cli
