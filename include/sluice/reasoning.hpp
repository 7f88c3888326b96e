// Reasoning that a model writes before its answer, apart from the answer.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "sluice/output_parts.hpp"
#include "sluice/tokenizer.hpp"
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
bool OpensReasoning(ReasoningFormat format, const Tokenizer& tokenizer,
                    std::span<const int32_t> prompt);
// The text that ends reasoning; empty for kNone and kHarmony.
std::string_view ReasoningEnd(ReasoningFormat format);

// Bounds the reasoning of an output: after this many tokens of it the next ones are those of the
// text that ends it, whatever the model says, and the answer follows. Tokens are counted from the
// end of the text that begins reasoning; those of an end that the model has begun count too.
struct ThinkingBudget {
  ReasoningFormat format = ReasoningFormat::kDeepSeek;  // one with a ReasoningEnd
  int64_t tokens = 0;                                   // 0: it ends as soon as it has begun
  bool is_open = false;  // the prompt has begun it, as OpensReasoning says

  friend bool operator==(const ThinkingBudget&, const ThinkingBudget&) = default;
};

// How far the reasoning of an output is, token by token: before it, in it, or in the answer. An
// output that begins with anything but white space and the text that begins reasoning has none.
class ReasoningPlace {
 public:
  enum class Part : uint8_t { kBefore, kReasoning, kAnswer };

  // Throws Error for a format without a ReasoningEnd.
  ReasoningPlace(ReasoningFormat format, const Tokenizer& tokenizer, bool is_open);

  // Takes a token with its text, which may be empty where the token is a marker that is not shown.
  // Returns how many bytes of the text come before the answer: all of them until that begins.
  size_t Step(int32_t id, std::string_view text);
  void BeginAnswer() { part_ = Part::kAnswer; }

  Part part() const { return part_; }
  size_t matched() const { return matched_; }  // bytes of the next marker that the text ends with
  int32_t begin_id() const { return begin_id_; }  // the token that is the marker; -1: there is none
  int32_t end_id() const { return end_id_; }

 private:
  std::string_view begin_;
  std::string_view end_;
  int32_t begin_id_;
  int32_t end_id_;
  Part part_;
  size_t matched_ = 0;
};

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
  OutputParser(const OutputFormat& format, const SharedTools& tools);  // not copied; null: none
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
