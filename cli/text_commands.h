// sluice tokenize and detokenize: text to ids and back, with a model's own files.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): as CLI11 has it
class App;
}

namespace sluice::cli {

// Adds both commands. What the command line asks for becomes `action`.
void AddTextCommands(CLI::App& app, std::function<void()>& action);

struct TokenizeOptions {
  std::string tokenizer_path;
  std::string input_path = "-";
  std::string decoder = "auto";
  bool adds_special_tokens = true;
  bool parses_special_tokens = false;
  bool as_json = false;
};
// Ids on one line, or one JSON object with the bytes of each token as well.
void RunTokenize(const TokenizeOptions& options, std::ostream& out);

struct DetokenizeOptions {
  std::string tokenizer_path;
  std::string input_path = "-";
  std::string decoder = "auto";
  bool shows_special_tokens = false;
  bool as_json = false;
};
// The text as it is, with no line end added, or one JSON object.
void RunDetokenize(const DetokenizeOptions& options, std::ostream& out);

}  // namespace sluice::cli
