// Sampling parameters as JSON: one object, its fields named as params.def says (those of OpenAI and
// vLLM where these have one).
//
//   numbers                a JSON number in its range; a whole one may be written 1.0
//   choices                their names; profile: a name, or an object of its switches
//   ids                    [1, 2]; words [[1, 2], [3]]
//   logit_bias             {"17": 2.5}, or [[17, 2.5]], which may name an id twice
//
// A range here is that of params.def; what depends on the vocabulary or on the operator's limits is
// left to Validate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sluice/params.hpp"

namespace sluice {

struct ParsedParams {
  SamplingParams params;
  std::vector<std::string> unknown;  // fields that are no parameters, in their order
};

// Fields that are absent or null keep what `base` has. Throws Error naming the field, its value and
// what is allowed; for what is no JSON object, naming `json`.
ParsedParams ParseParams(std::string_view json, const SamplingParams& base = {});

// ParseParams(WriteParams(p)).params == p. Lists that are empty and options that are unset are left
// out.
std::string WriteParams(const SamplingParams& params);

}  // namespace sluice
