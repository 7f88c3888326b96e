// How many tokens of an output are reasoning, for the usage of responses.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "sluice/detokenizer.hpp"
#include "sluice/reasoning.hpp"

namespace sluice::server {

// The number is that of the tokens alone, whatever the outputs are that they come in. A token
// counts where some of its text is reasoning, or where it has none that is shown, as a marker, and
// the next text that is shown is reasoning.
class ReasoningCount {
 public:
  ReasoningCount(const OutputFormat& format, const Tokenizer& tokenizer,
                 const DetokenizerOptions& options)
      : detokenizer_(tokenizer, options),
        parser_({.reasoning = format.reasoning, .opens_reasoning = format.opens_reasoning}) {}

  void Step(std::span<const int32_t> ids);
  void Finish();  // after the last token
  int64_t tokens() const { return tokens_; }

 private:
  void TakeParts();

  Detokenizer detokenizer_;
  OutputParser parser_;
  std::string text_;
  OutputParts parts_;
  int64_t waiting_ = 0;  // tokens after the last part
  int64_t tokens_ = 0;
};

}  // namespace sluice::server
