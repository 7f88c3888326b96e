// The flags that sluice generate and sluice trace share: a model, a prompt, and how to go on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/generate/model_source.h"
#include "sluice/engine_messages.hpp"
#include "sluice/generator.hpp"

namespace sluice::cli {

struct GenerationOptions {
  ModelSource source;
  SamplingParams params;
  Backend backend = Backend::kAuto;
  HeadChoice head = HeadChoice::kAuto;
  std::string head_file;  // of clusters; empty: they are built

  std::optional<std::string> prompt;  // "-" is standard input
  std::string prompt_path;            // empty: `prompt` has it
  bool is_chat = false;
  std::string system;
  bool adds_special_tokens = true;
  bool parses_special_tokens = false;
  bool truncates_prompt = false;

  int64_t max_tokens = 256;
  std::optional<int32_t> prompt_logprobs;
  int32_t choices = 1;
  std::optional<OutputGrammar> grammar;
  std::string grammar_library;  // empty: see OpenGrammarLibrary
  std::optional<int64_t> thinking_tokens;
  bool ignores_end = false;
  std::vector<std::string> stops;
  bool include_stop = false;
  bool is_quiet = false;
};

// The flags of all of these; all but `choices`, `prompt_logprobs` and `grammar`, which only make
// sense for text.
void AddGenerationFlags(CLI::App& command, GenerationOptions& options, int64_t least_tokens);

}  // namespace sluice::cli
