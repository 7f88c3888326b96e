#include <string>
#include <string_view>

#include "sluice/tool_calls.hpp"
#include "support/check.h"
#include "text/markup/arguments.h"

namespace sluice {
namespace {

// How a grammar writes calls: open, then before NAME after_name ARGUMENTS after_arguments for each,
// with separators, then close. A parser reads other forms as well.
struct CallForm {
  std::string_view open = {};
  std::string_view before = {};
  std::string_view after_name = {};
  std::string_view after_arguments = {};
  std::string_view separator = {};
  std::string_view close = {};
  bool has_marker = true;         // that all calls begin with, and no other text
  std::string_view trigger = {};  // that marker, where it is less than `before`
  std::string_view style = {};
};

CallForm FormOf(ToolFormat format) {
  constexpr std::string_view kName = "{\"name\": \"";
  constexpr std::string_view kArguments = "\", \"arguments\": ";
  constexpr std::string_view kParameters = "\", \"parameters\": ";
  switch (format) {
    case ToolFormat::kNone:
      break;
    case ToolFormat::kHermes:
      return {.before = "<tool_call>\n{\"name\": \"",
              .after_name = kArguments,
              .after_arguments = "}\n</tool_call>",
              .separator = "\n",
              .trigger = "<tool_call>"};
    case ToolFormat::kLlamaJson:
    case ToolFormat::kPythonic:  // its own form is no JSON
      return {.before = kName,
              .after_name = kParameters,
              .after_arguments = "}",
              .separator = "; ",
              .has_marker = false};
    case ToolFormat::kMistral:
      return {.open = "[TOOL_CALLS][",
              .before = kName,
              .after_name = kArguments,
              .after_arguments = "}",
              .separator = ", ",
              .close = "]"};
    case ToolFormat::kDeepSeek:
      return {.open = "<｜tool▁calls▁begin｜>",
              .before = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
              .after_name = "\n```json\n",
              .after_arguments = "\n```<｜tool▁call▁end｜>",
              .separator = "\n",
              .close = "<｜tool▁calls▁end｜>"};
    case ToolFormat::kKimi:
      return {.open = "<|tool_calls_section_begin|>",
              .before = "<|tool_call_begin|>functions.",
              .after_name = ":0<|tool_call_argument_begin|>",
              .after_arguments = "<|tool_call_end|>",
              .separator = "\n",
              .close = "<|tool_calls_section_end|>"};
    case ToolFormat::kGemma:
      return {.before = "```json\n{\"name\": \"",
              .after_name = kParameters,
              .after_arguments = "}\n```",
              .separator = "\n",
              .has_marker = false};
    case ToolFormat::kHarmony:
      return {.before = "<|channel|>commentary to=functions.",
              .after_name = " <|constrain|>json<|message|>",
              .after_arguments = "<|call|>",
              .separator = "<|start|>assistant"};
    case ToolFormat::kFunctionary:
      return {.before = ">>>", .after_name = "\n", .separator = "\n", .has_marker = false};
    case ToolFormat::kFunctionTag:
      return {.before = "<function=",
              .after_name = ">",
              .after_arguments = "</function>",
              .separator = "\n"};
    case ToolFormat::kXml:
      return {.before = "<tool_call>\n<function=",
              .after_name = ">\n",
              .after_arguments = "\n</function>\n</tool_call>",
              .separator = "\n",
              .trigger = "<tool_call>",
              .style = "qwen_xml"};
  }
  ThrowInvalid("format", "none", "a format of tool calls");
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char byte : text) text::AppendTextByte(byte, quoted);
  return quoted.append("\"");
}

std::string Tag(std::string_view begin, std::string_view content, std::string_view end) {
  std::string tag = R"({"type":"tag","begin":)" + Quoted(begin);
  tag.append(",\"content\":").append(content).append(",\"end\":").append(Quoted(end));
  return tag.append("}");
}

// is_bound: to the tool's schema; otherwise its arguments are any object. A style other than JSON
// has to have the names of parameters.
std::string CallTag(const CallForm& form, const Tool& tool, bool is_bound) {
  std::string schema = R"({"type":"json_schema","json_schema":)";
  if (!is_bound && form.style.empty()) {
    schema.append(R"({"type":"object","additionalProperties":true})");
  } else if (tool.parameters.empty()) {
    schema.append(R"({"type":"object","properties":{}})");
  } else {
    schema.append(tool.parameters);
  }
  if (!form.style.empty()) schema.append(R"(,"style":)").append(Quoted(form.style));
  // Without a bound some models go on with white space until the output is cut.
  schema.append(R"(,"max_whitespace_cnt":1})");
  const std::string begin = std::string(form.before).append(tool.name).append(form.after_name);
  return Tag(begin, schema, form.after_arguments);
}

// One call or more.
std::string Calls(const CallForm& form, std::string_view tags, bool is_parallel) {
  std::string calls = R"({"type":"tags_with_separator","tags":[)" + std::string(tags);
  calls.append(R"(],"separator":)").append(Quoted(form.separator));
  calls.append(R"(,"at_least_one":true,"stop_after_first":)");
  calls.append(is_parallel ? "false}" : "true}");
  return form.open.empty() ? calls : Tag(form.open, calls, form.close);
}

std::string WithinText(const CallForm& form, std::string_view tags, bool is_parallel) {
  std::string text = R"({"type":"triggered_tags","triggers":[)";
  const std::string_view begin = form.trigger.empty() ? form.before : form.trigger;
  text.append(Quoted(form.open.empty() ? begin : form.open)).append(R"(],"tags":[)");
  text.append(form.open.empty() ? std::string(tags) : Calls(form, tags, is_parallel));
  text.append(R"(],"at_least_one":false,"stop_after_first":)");
  return text.append(is_parallel ? "false}" : "true}");
}

}  // namespace

std::string ToolGrammar(ToolFormat format, std::span<const Tool> tools,
                        const ToolGrammarOptions& options) {
  const CallForm form = FormOf(format);
  CheckTools(tools);
  if (tools.empty()) ThrowInvalid("tools", "an empty list", "one tool or more");
  const bool is_required = options.choice == ToolChoice::kRequired;
  std::string tags;
  for (const Tool& tool : tools) {
    tags.append(tags.empty() ? "" : ",").append(CallTag(form, tool, is_required || tool.is_strict));
  }
  if (!is_required && !form.has_marker) return {};
  std::string answer = is_required ? Calls(form, tags, options.is_parallel)
                                   : WithinText(form, tags, options.is_parallel);
  if (!options.reasoning_end.empty()) {
    const std::string reasoning = Tag("", R"({"type":"any_text"})", options.reasoning_end);
    answer = R"({"type":"sequence","elements":[)" + reasoning + "," + answer + "]}";
  }
  return R"({"type":"structural_tag","format":)" + answer + "}";
}

}  // namespace sluice
