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

// Adds both commands. `action` becomes what the command line selects.
void AddTextCommands(CLI::App& app, std::function<void()>& action);

struct TokenizerFile {
  std::string path;
  std::string decoder = "auto";
  std::string pattern;                      // of a *.tiktoken file
  std::vector<std::string> special_tokens;  // of a *.tiktoken file, as TEXT=ID
};

struct TokenizeOptions {
  TokenizerFile tokenizer;
  std::string text = "-";  // "-": of the input
  std::string input_path = "-";
  bool adds_special_tokens = true;
  bool parses_special_tokens = false;
  bool as_json = false;
};
// Ids on one line, or one JSON object with the bytes of each token as well.
void RunTokenize(const TokenizeOptions& options, std::ostream& out);

struct DetokenizeOptions {
  TokenizerFile tokenizer;
  std::vector<std::string> ids = {"-"};  // "-": of the input
  std::string input_path = "-";
  bool shows_special_tokens = false;
  bool as_json = false;
};
// The text as it is, with no line end added, or one JSON object.
void RunDetokenize(const DetokenizeOptions& options, std::ostream& out);

}  // namespace sluice::cli
