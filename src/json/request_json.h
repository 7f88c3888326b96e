// Requests to an engine as JSON, and what they gave: one object, and a file of them with one a
// line.
//
//   {"request": {"prompt": [1, 2], "choice": 0, "max_tokens": 256, "prompt_logprobs": 5,
//                "stop_at": "engine", "stops": ["END"], "include_stop": false,
//                "skip_special_tokens": true, "spaces_between_special_tokens": true,
//                "utf8_errors": "maximal", "incomplete": "replace", "parameters": {"seed": 7,
//                ...},
//                "grammar": {"kind": "json_schema", "text": "{}", "strict": true,
//                            "max_whitespace": 1},
//                "thinking": {"format": "deepseek", "tokens": 100, "is_open": false}},
//    "result": {"text": "...", "token_ids": [3, 4], "end": "length", "prompt_tokens": 2,
//               "output_tokens": 2}}
//
// A field that is not given has its default; prompt, parameters.seed and the kind of a grammar must
// be given. Any other
// field is an error. An address belongs to a link, not to a request: it is not written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/engine_messages.hpp"

namespace sluice {

struct RequestResult {
  std::string text = {};
  std::vector<int32_t> ids = {};
  std::string end = {};  // as Name(GenerationEnd) has it
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;

  friend bool operator==(const RequestResult&, const RequestResult&) = default;
};

struct RequestRecord {
  EngineRequest request = {};
  std::optional<RequestResult> result = {};

  friend bool operator==(const RequestRecord&, const RequestRecord&) = default;
};

// ReadRecord(WriteRecord(r)) == r, but for the address. No line end is in it.
std::string WriteRecord(const RequestRecord& record);

// Throws Error naming the field ("request.max_tokens"), its value and what is allowed; for what is
// no JSON object, naming `json`. What depends on a model is left to the engine.
RequestRecord ReadRecord(std::string_view json);

// The records of the lines that are not empty. Errors name the line: "line 3: request.max_tokens".
std::vector<RequestRecord> ReadRecords(std::string_view lines);

}  // namespace sluice
