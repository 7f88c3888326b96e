// Requests to an engine, from the arguments of a call.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "python/engine/output_grammar.h"
#include "python/values/keywords.h"
#include "sluice/client.hpp"

namespace sluice::python {

namespace nb = nanobind;

inline constexpr Keywords kEngineRequestKeywords =
    kParamKeywords | kGrammarKeywords |
    Keywords{Keyword::max_tokens,          Keyword::stop,
             Keyword::include_stop,        Keyword::ignore_eos,
             Keyword::skip_special_tokens, Keyword::choice,
             Keyword::prompt_logprobs,     Keyword::thinking_budget,
             Keyword::reasoning_format};
inline constexpr Keywords kModeKeywords = {Keyword::mode, Keyword::stream_interval};

// Everything but the prompt. `params` is a SamplingParams or None, which is `defaults`; the
// keywords come on top.
ClientRequest EngineRequestFrom(nb::handle params, const Arguments& arguments,
                                const SamplingParams& defaults);

// Says whether the prompt has begun the reasoning that is bounded, if any is.
void SetOpenReasoning(const Tokenizer& tokenizer, ClientRequest& request);

// The ids of a prompt: a text, which gets the model's tokens around it, or ids.
std::vector<int32_t> PromptFrom(const Tokenizer& tokenizer, nb::handle prompt);
// A list of prompts, where a list of ids is one.
bool ArePrompts(nb::handle prompt);

// The signature of a call with every parameter of a request, expanded from params.def.
const char* EngineRequestSignature(std::string_view name, std::string_view prompt, bool has_mode,
                                   std::string_view result);

}  // namespace sluice::python
