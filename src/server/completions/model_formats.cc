#include "server/completions/model_formats.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include "grammar/schema_check.h"
#include "support/number.h"

namespace sluice::server {
namespace {

bool HasSpecial(const Tokenizer& tokenizer, std::span<const std::string_view> markers) {
  return std::ranges::any_of(markers, [&](std::string_view marker) {
    const std::optional<int32_t> id = tokenizer.Id(marker);
    return id.has_value() && tokenizer.IsSpecial(*id);
  });
}

std::string ParametersField(const ToolRequest& tools, size_t index) {
  return "tools[" + Number(tools.first + index) + "]" + std::string(tools.names.parameters);
}

// The engine would name the text of all tools, not the one with the wrong schema.
void CheckSchemas(const ToolRequest& tools, ToolChoice choice) {
  for (size_t i = 0; i < tools.tools.size(); ++i) {
    const Tool& tool = tools.tools[i];
    const bool is_bound = choice == ToolChoice::kRequired || tool.is_strict;
    if (tool.parameters.empty() || !is_bound) continue;
    try {
      grammar::CheckSchema(ParametersField(tools, i), tool.parameters, GrammarLimits{}.nesting);
    } catch (const Error& error) {
      throw ApiFailure(ToApiError(error));
    }
  }
}

// field: of the request for calls that match their schemas.
void SetGrammar(CompletionRequest& asked, const OutputFormat& output,
                const ToolGrammarOptions& options, std::string field) {
  const ToolRequest& tools = asked.tools;
  std::string text = ToolGrammar(output.tools, tools.tools, options);
  if (text.empty()) return;
  CheckSchemas(tools, options.choice);
  asked.grammar = OutputGrammar{.kind = GrammarKind::kStructuralTag, .text = std::move(text)};
  asked.grammar_field = std::move(field);
  asked.grammar_text_field = tools.tools.size() == 1 ? ParametersField(tools, 0) : "tools";
}

void ChooseCalls(CompletionRequest& asked, const ModelFormats& formats, OutputFormat& output) {
  const ToolRequest& tools = asked.tools;
  const bool is_required = tools.choice == CallChoice::kRequired;
  output.tools = formats.tools;
  ToolGrammarOptions options = {.choice = is_required ? ToolChoice::kRequired : ToolChoice::kAuto,
                                .is_parallel = tools.is_parallel};
  // With a budget the grammar begins after it.
  if (output.opens_reasoning && !asked.thinking.has_value())
    options.reasoning_end = ReasoningEnd(output.reasoning);
  if (is_required) {
    if (asked.grammar.has_value()) {
      throw ApiFailure({.message = "tool_choice is not allowed together with " +
                                   asked.grammar_field + ": an output has one grammar",
                        .param = "tool_choice"});
    }
    // A grammar makes any model write calls in a form of our choice.
    if (output.tools == ToolFormat::kNone) output.tools = ToolFormat::kHermes;
    return SetGrammar(asked, output, options, "tool_choice");
  }
  // Their calls have no marker: JSON of a grammar would be taken for one.
  const bool is_bare =
      output.tools == ToolFormat::kLlamaJson || output.tools == ToolFormat::kPythonic;
  if (asked.grammar.has_value() && is_bare) {
    output.tools = ToolFormat::kNone;
    return;
  }
  if (output.tools == ToolFormat::kNone) {
    throw ApiFailure(
        {.message = "tools is not supported: the chat template of this model has no known form of "
                    "calls. tool_choice = \"required\" or with the name of a function works with "
                    "every model, and serve --tool-format NAME names the form",
         .param = "tools",
         .code = "unsupported_parameter"});
  }
  // A grammar has no special tokens in it, so it would forbid the model its own markers.
  const auto strict = std::ranges::find_if(tools.tools, &Tool::is_strict);
  if (strict == tools.tools.end() || asked.grammar.has_value() || formats.has_special_markers) {
    return;
  }
  SetGrammar(
      asked, output, options,
      "tools[" + Number(strict - tools.tools.begin()) + "]" + std::string(tools.names.strict));
}

}  // namespace

ModelFormats FormatsOf(const ModelText& text, std::string_view tools, std::string_view reasoning,
                       int64_t reasoning_budget) {
  const std::string& source = text.chat_template();
  ModelFormats formats = {
      .tools = tools.empty() ? DetectToolFormat(source) : ToolFormatByName(tools),
      .reasoning =
          reasoning.empty() ? DetectReasoningFormat(source) : ReasoningFormatByName(reasoning)};
  formats.has_special_markers = HasSpecial(text.tokenizer(), MarkersOf(formats.tools)) ||
                                HasSpecial(text.tokenizer(), MarkersOf(formats.reasoning));
  formats.reasoning_budget = reasoning_budget;
  if (reasoning_budget >= 0 && ReasoningEnd(formats.reasoning).empty()) {
    ThrowInvalid("reasoning_budget", Number(reasoning_budget),
                 "-1, as the form of reasoning is " + std::string(Name(formats.reasoning)) +
                     ": a budget needs deepseek, mistral or seed, which reasoning_format may name");
  }
  return formats;
}

namespace {

void ChooseThinking(CompletionRequest& asked, const ModelFormats& formats,
                    std::string_view prompt) {
  const int64_t tokens = asked.thinking_tokens.value_or(formats.reasoning_budget);
  if (tokens < 0) return;
  if (ReasoningEnd(formats.reasoning).empty()) {
    if (asked.thinking_field.empty()) return;  // of messages: see messages_request.cc
    throw ApiFailure(
        {.message = asked.thinking_field +
                    " is not supported: the reasoning of this model has no known end. serve "
                    "--reasoning-format NAME names its form: deepseek, mistral or seed",
         .param = asked.thinking_field,
         .code = "unsupported_parameter"});
  }
  asked.thinking = ThinkingBudget{.format = formats.reasoning,
                                  .tokens = tokens,
                                  .is_open = OpensReasoning(formats.reasoning, prompt)};
}

}  // namespace

void ChooseOutput(CompletionRequest& asked, const ModelFormats& formats, std::string_view prompt) {
  ChooseThinking(asked, formats, prompt);
  OutputFormat& output = asked.output;
  if (asked.tools.separates_reasoning) output.reasoning = formats.reasoning;
  // A grammar begins with the output and leaves no room for reasoning, unless this has a budget. A
  // structural tag may have it.
  const bool may_reason = asked.thinking.has_value() || !asked.grammar.has_value() ||
                          asked.grammar->kind == GrammarKind::kStructuralTag;
  output.opens_reasoning = may_reason && OpensReasoning(output.reasoning, prompt);
  if (asked.tools.may_call()) ChooseCalls(asked, formats, output);
  const bool is_parsed =
      output.tools != ToolFormat::kNone || output.reasoning != ReasoningFormat::kNone;
  if (is_parsed && formats.has_special_markers) {
    asked.text.detokenizer.skip_special_tokens = false;
  }
}

}  // namespace sluice::server
