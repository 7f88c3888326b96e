// What sluice serve says when it can be reached.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace sluice::cli {

struct ServeStart {
  std::string url;  // "http://127.0.0.1:8080", "unix:PATH"
  std::string model;
  std::vector<std::string> engines;    // endpoints
  std::optional<int> engine_pid = {};  // of the engine of its own
  bool has_api_keys = false;
  bool is_built_in_model = false;
};

// For people: the address, and requests by curl and by OpenAI's client.
void PrintStart(const ServeStart& start, std::ostream& out, const Terminal& terminal);
// {"url", "pid", "model", "engine": [...], "engine_pid"} and a line feed.
void WriteStart(const ServeStart& start, std::ostream& out);

}  // namespace sluice::cli
