// Reasoning that a model writes before its answer, apart from the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sluice/output_parts.hpp"
#include "sluice/tool_calls.hpp"

namespace sluice {

enum class ReasoningFormat : uint8_t {
  kNone,      // every text is content
  kDeepSeek,  // <think>...</think> at the beginning: DeepSeek, Qwen, GLM and most others
  kMistral,   // [THINK]...[/THINK]
  kSeed,      // <seed:think>...</seed:think>
  kHarmony,   // gpt-oss: the channel `analysis`
};

std::string_view Name(ReasoningFormat format);                 // "none", "deepseek", ...
ReasoningFormat ReasoningFormatByName(std::string_view name);  // throws Error for another one
std::span<const std::string_view> ReasoningFormatNames();

// That of the models with this chat template; kNone where it has none of them.
ReasoningFormat DetectReasoningFormat(std::string_view template_source);

// The texts that a parser needs to see; see MarkersOf(ToolFormat).
std::span<const std::string_view> MarkersOf(ReasoningFormat format);

// Whether the output goes on with reasoning that this prompt has begun, as many templates do it.
bool OpensReasoning(ReasoningFormat format, std::string_view prompt);
// The text that ends reasoning; empty for kNone and kHarmony.
std::string_view ReasoningEnd(ReasoningFormat format);

struct OutputFormat {
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  bool opens_reasoning = false;  // the prompt has begun it
  ToolFormat tools = ToolFormat::kNone;
};

// Reasoning, content and calls of one output: as ToolCallParser for both formats. Calls are read in
// the answer alone. With kHarmony of either kind the channels are read together.
class OutputParser {
 public:
  explicit OutputParser(const OutputFormat& format, std::span<const Tool> tools = {});
  ~OutputParser();
  OutputParser(OutputParser&&) noexcept;
  OutputParser& operator=(OutputParser&&) noexcept;

  void Step(std::string_view text, OutputParts& parts);
  void Finish(OutputParts& parts);

  size_t held_bytes() const;
  int32_t calls() const;

 private:
  void ReadAnswer(OutputParts& parts);

  std::unique_ptr<text::MarkupMachine> reasoning_;  // null: none
  std::unique_ptr<text::MarkupMachine> tools_;      // null: none
  OutputParts split_;
};

}  // namespace sluice
