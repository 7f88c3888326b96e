// sluice trace: what went through the head and the sampler in a real generation, as files.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "cli/files/trace_tensors.h"
#include "cli/generate/generation_flags.h"

namespace sluice::cli {

struct TraceOptions {
  GenerationOptions generation;
  std::string output;  // folder
  TraceFormat format = TraceFormat::kNpy;
};

// Adds the command. `action` becomes what the command line selects.
void AddTrace(CLI::App& app, std::function<void()>& action);

// A row for each generated token, into files of the folder:
//
//   hidden.npy  fp32 [tokens, dim]               what the head was given
//   logits.npy  fp32 [tokens, vocab]             as the model gave them, after its soft-cap
//   kept.npy    int32 [tokens, ceil(vocab / 32)] the kept set: bit i of word w is token 32 w + i
//   tokens.npy  int32 [tokens]                   what was drawn
//   trace.json  the model, the prompt, the parameters with the seed; of each token its Cut, its
//               masses and what certified it
//
// The format safetensors has the four tensors in one file, trace.safetensors, and in its
// __metadata__ what trace.json says besides the tokens; "parameters" is a JSON object there.
//
// Throws Interrupted, with whole files, when a signal has ended it.
void RunTrace(const TraceOptions& options, std::ostream& out);

}  // namespace sluice::cli
