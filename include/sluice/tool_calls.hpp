// Calls of tools: the forms in which models write them, and grammars that bind an output to one.
//
// A parser is a machine over the bytes of the text. Its output is the same for every cut of the
// text into pieces. It holds back only what may still become a marker or the head of a call, and
// no more than kMostHeldBytes of it. White space between calls is part of the markers. What does
// not become a call comes out as content, byte for byte. A call begins with its arguments, which
// come out as they come. Where they cannot be read any further, the call ends as a broken one, and
// the rest is content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/output_parts.hpp"

namespace sluice {

namespace text {
class MarkupMachine;
}

enum class ToolFormat : uint8_t {
  kNone,         // every text is content
  kHermes,       // <tool_call>{"name": "f", "arguments": {}}</tool_call>: Hermes, Qwen
  kLlamaJson,    // {"name": "f", "parameters": {}} at the beginning, after <|python_tag|> anywhere
  kPythonic,     // [f(a=1), g()] at the beginning: Llama 4, LFM2
  kMistral,      // [TOOL_CALLS][{"name": "f", "arguments": {}}] and [TOOL_CALLS]f[ARGS]{}
  kDeepSeek,     // V3, R1 and V3.1: <｜tool▁calls▁begin｜>...
  kKimi,         // K2: <|tool_calls_section_begin|>...
  kGemma,        // a fenced block with the word tool_code, or json and a call as Llama has it
  kHarmony,      // gpt-oss: <|channel|>commentary to=functions.f<|message|>{}; reasoning as well
  kFunctionary,  // v3.2: >>>f, a line feed, {}
  kFunctionTag,  // <function=f>{}</function>: functionary v3.1, Llama 3.1
  kXml,          // <function=f><parameter=a>1</parameter></function>: Qwen3-Coder
};
inline constexpr size_t kMostHeldBytes = 512;

std::string_view Name(ToolFormat format);            // "none", "hermes", "llama_json", ...
ToolFormat ToolFormatByName(std::string_view name);  // throws Error for another one
std::span<const std::string_view> ToolFormatNames();

// That of the models with this chat template; kNone where it has none of them.
ToolFormat DetectToolFormat(std::string_view template_source);

// The texts that a parser needs to see. A tokenizer may have some of them as special tokens, which
// a detokenizer skips by default: then let it show special tokens.
std::span<const std::string_view> MarkersOf(ToolFormat format);

// One function that a model may call.
struct Tool {
  std::string name = {};        // 1 to 64 of a-z, A-Z, 0-9, _ and -
  std::string parameters = {};  // a JSON schema of an object; empty: one without properties
  bool is_strict = false;       // its arguments have to match the schema
};

// Of one request, for the parsers of all its choices.
using SharedTools = std::shared_ptr<const std::vector<Tool>>;

// Throws Error naming tools[i].`member` for a name that is none, or that comes again.
void CheckTools(std::span<const Tool> tools, std::string_view member = "name");

class ToolCallParser {
 public:
  // `tools`: kXml writes a parameter as a text where its schema says so. Others do not use them.
  explicit ToolCallParser(ToolFormat format, std::span<const Tool> tools = {});
  ~ToolCallParser();
  ToolCallParser(ToolCallParser&&) noexcept;
  ToolCallParser& operator=(ToolCallParser&&) noexcept;

  // Appends what the next piece of the text releases.
  void Step(std::string_view text, OutputParts& parts);
  // Appends what was held back. Nothing comes after it.
  void Finish(OutputParts& parts);

  size_t held_bytes() const;
  int32_t calls() const;  // that have begun

 private:
  std::unique_ptr<text::MarkupMachine> machine_;
};

enum class ToolChoice : uint8_t { kAuto, kRequired };

struct ToolGrammarOptions {
  ToolChoice choice = ToolChoice::kAuto;
  bool is_parallel = true;  // more than one call
  // The text that ends the reasoning that the output begins with; empty: it begins with none.
  std::string_view reasoning_end = {};
};

// The text of a GrammarKind::kStructuralTag grammar: calls of these tools, with arguments that
// match their parameters. kAuto: within free text, and empty where the format has no marker that a
// call begins with. kRequired: one call or more and nothing else; for one named tool, give it
// alone. Throws Error for kNone and for tools as CheckTools does.
std::string ToolGrammar(ToolFormat format, std::span<const Tool> tools,
                        const ToolGrammarOptions& options = {});

}  // namespace sluice
