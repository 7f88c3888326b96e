// The fields that give an output its grammar, by the names of several servers:
//
//   OpenAI     response_format
//   vLLM       structured_outputs, guided_json, guided_regex, guided_choice, guided_grammar
//   SGLang     regex, ebnf, json_schema, structural_tag
//   llama.cpp  grammar, json_schema, and response_format with a schema of its own
//
// A schema is an object, which keeps the order of its properties, or its text. A request has one
// grammar at most. An engine finds what is wrong inside of it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/request/request_value.h"
#include "sluice/engine_messages.hpp"

namespace sluice::server {

struct GrammarInput {
  size_t max_bytes = 0;  // of the grammar's text
  std::optional<OutputGrammar> grammar = {};
  std::string field = {};                 // the client's: "response_format.json_schema.schema"
  std::vector<std::string> unknown = {};  // "response_format.foo"
};

std::span<const std::string_view> GrammarFields();
bool IsGrammarField(std::string_view name);
// Throws ApiFailure and Error; a second grammar is an error with the names of both.
void ReadGrammarField(GrammarInput& to, const RequestValue& value);
// A format as response_format has it, with the members of json_schema in itself:
// {"type": "json_schema", "name", "schema", "strict"}.
void ReadFlatFormat(GrammarInput& to, const RequestValue& value);

}  // namespace sluice::server
