// Outputs of models in each format, and the parts that they have.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "sluice/reasoning.hpp"

namespace sluice::test {

// One line a part, white space as it is: "content Hi", "call 0 f", "arguments 0 {}", "end 0".
inline std::string Shown(const OutputParts& parts) {
  constexpr std::string_view kKinds[] = {"content",   "reasoning", "call",
                                         "arguments", "end",       "broken"};
  std::string shown;
  for (size_t i = 0; i < parts.size(); ++i) {
    const OutputPart part = parts[i];
    shown.append(kKinds[static_cast<size_t>(part.kind)]);
    if (part.call >= 0) shown.append(" ").append(std::to_string(part.call));
    if (!part.text.empty()) shown.append(" ").append(part.text);
    shown.append("|");
  }
  return shown;
}

struct OutputCase {
  OutputFormat format;
  std::string text;
  std::string shown;
};

// The tools of all cases.
inline std::vector<Tool> CaseTools() {
  return {{.name = "f", .parameters = R"({"type":"object","properties":{"a":{"type":"integer"},
                             "s":{"type":"string"},"l":{"type":"array"},"b":{"type":"boolean"},
                             "n":{"anyOf":[{"type":"number"},{"type":"null"}]},
                             "o":{"$ref":"#/$defs/o"}},
                             "$defs":{"o":{"type":"object"}}})"},
          {.name = "g"}};
}

// [tool_formats]
inline std::vector<OutputCase> ToolCases() {
  using enum ToolFormat;
  const auto of = [](ToolFormat format) { return OutputFormat{.tools = format}; };
  const std::string two = "call 0 f|arguments 0 {\"a\": 1}|end 0|call 1 g|arguments 1 {}|end 1|";
  return {
      {of(kHermes),
       "I look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n"
       "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>\n",
       "content I look.\n|" + two},
      {of(kHermes), " <tool_call>{\"name\":\"f\"}</tool_call> done",
       "call 0 f|arguments 0 {}|end 0|content  done|"},
      {of(kLlamaJson),
       "{\"name\": \"f\", \"parameters\": {\"a\": 1}}; {\"name\": \"g\", \"parameters\": {}}", two},
      {of(kLlamaJson),
       "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
       "call 0 f|arguments 0 {}|end 0|"},
      {of(kPythonic), "[f(a=1), g()]", two},
      {of(kPythonic), "[f(s='it\\'s \"é\"\\n', l=[True, None, (1, -2.5e3), {'k': \"v\"}],), g( )]",
       "call 0 f|arguments 0 {\"s\": \"it's \\\"é\\\"\\n\", \"l\": [true, null, [1, -2.5e3], "
       "{\"k\": \"v\"}]}|end 0|call 1 g|arguments 1 {}|end 1|"},
      {of(kMistral),
       "Hm[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"id\": \"abc123XYZ\"}, "
       "{\"name\": \"g\", \"arguments\": {}}]",
       "content Hm|" + two},
      {of(kMistral), "[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]q1[ARGS]{}", two},
      {of(kDeepSeek),
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
       "1}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       two},
      {of(kDeepSeek),
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       two},
      {of(kKimi),
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
       "{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}"
       "<|tool_call_end|><|tool_calls_section_end|>",
       two},
      {of(kGemma), "```tool_code\nf(a=1)\ng()\n```", two},
      {of(kGemma), "So:\n```json\n{\"name\": \"f\", \"parameters\": {\"a\": 1}}\n```",
       "content So:\n|call 0 f|arguments 0 {\"a\": 1}|end 0|"},
      {of(kHarmony),
       "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
       "reasoning Think.|call 0 f|arguments 0 {\"a\": 1}|end 0|"},
      {of(kHarmony),
       "<|channel|>commentary<|message|>Soon.<|end|><|start|>assistant to=functions.f<|channel|>"
       "commentary json<|message|>{\"a\": 1}<|call|><|start|>assistant<|channel|>final<|message|>"
       "Done.<|return|>",
       "content Soon.|call 0 f|arguments 0 {\"a\": 1}|end 0|content Done.|"},
      {of(kFunctionary), ">>>f\n{\"a\": 1}>>>g\n{}", two},
      {of(kFunctionary), "all\nHi>>>f\n{}", "content Hi|call 0 f|arguments 0 {}|end 0|"},
      {of(kFunctionTag), "<function=f>{\"a\": 1}</function>\n<function=g>{}</function>", two},
      {of(kXml),
       "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n"
       "<tool_call>\n<function=g>\n</function>\n</tool_call>",
       two},
      {of(kXml),
       "<function=f><parameter=s>a \"<b>\n</parameter><parameter=l>[1]</parameter></function>",
       "call 0 f|arguments 0 {\"s\": \"a \\\"<b>\", \"l\": [1]}|end 0|"},
      {of(kNone), "<tool_call>{}", "content <tool_call>{}|"},
  };
}
// [tool_formats]

// Values and escapes of Python, as the JSON that they become.
inline std::vector<OutputCase> ValueCases() {
  const auto python = [](const std::string& value, const std::string& json) {
    return OutputCase{{.tools = ToolFormat::kPythonic},
                      "[f(s=" + value + ")]",
                      "call 0 f|arguments 0 {\"s\": " + json + "}|end 0|"};
  };
  const auto xml = [](const std::string& key, const std::string& value, const std::string& json) {
    return OutputCase{
        {.tools = ToolFormat::kXml},
        "<function=f>\n<parameter=" + key + ">\n" + value + "\n</parameter>\n</function>",
        "call 0 f|arguments 0 {\"" + key + "\": " + json + "}|end 0|"};
  };
  return {
      python(R"('\x41\u00e9\U0001F600')", R"("\u0041\u00e9\ud83d\ude00")"),
      python(R"('\x4')", R"("\\x4")"),
      python(R"('\x')", R"("\\x")"),
      python(R"('\u12g\n')", R"("\\u12g\n")"),
      python(R"('\x4\x41')", R"("\\x4\u0041")"),
      python(R"('\U00110000a')", R"("\\U00110000a")"),
      python("1_000", "1000"),
      python("[.5, 1., -0.5E+3, +7, 007]", "[0.5, 1.0, -0.5e3, 7, 7]"),
      xml("a", "1", "1"),
      xml("a", "", "\"\""),
      xml("a", " -1_0 ", "-10"),
      xml("a", "seven", "\"seven\""),
      xml("a", "</b>", "\"</b>\""),
      xml("a", "1\n2", "\"1\\n2\""),
      xml("a", std::string(300, '1'), "\"" + std::string(300, '1') + "\""),
      xml("b", "True", "true"),
      xml("b", "false", "false"),
      xml("n", "None", "null"),
      xml("n", "1.5", "1.5"),
      xml("l", "['a', True, {'k': None}]", R"(["a", true, {"k": null}])"),
      xml("l", R"(["</parameter>", "a\/b", 'it\'s'])", R"(["</parameter>", "a/b", "it's"])"),
      xml("l", "(1, 2)", "\"(1, 2)\""),
      xml("o", R"({"k": [1, {"x": -2}]})", R"({"k": [1, {"x": -2}]})"),
      xml("o", "{}", "{}"),
      xml("s", "True", "\"True\""),
      xml("s", "", "\"\""),
      xml("unknown", "1", "\"1\""),
  };
}

// What is no call comes out whole; a call that was begun stays one.
inline std::vector<OutputCase> MalformedCases() {
  using enum ToolFormat;
  const auto whole = [](ToolFormat format, const std::string& text) {
    return OutputCase{{.tools = format}, text, "content " + text + "|"};
  };
  const auto of = [](ToolFormat format, const std::string& text, const std::string& shown) {
    return OutputCase{{.tools = format}, text, shown};
  };
  return {
      whole(kHermes, "a < b <tool_call> {\"name\": f}"),
      whole(kHermes, "<tool_call><tool_cal"),
      whole(kHermes, "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>"),
      whole(kHermes, "<tool_call>{\"name\": \"" + std::string(65, 'f') + "\", \"arguments\": {}}"),
      whole(kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}"),
      whole(kHermes, "<tool_call>" + std::string(600, ' ') + "{\"name\": \"f\"}"),
      of(kHermes, "<tool_call><tool_call>{\"name\":\"f\"}</tool_call>",
         "content <tool_call>|call 0 f|arguments 0 {}|end 0|"),
      of(kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": </tool_call> x",
         "call 0 f|arguments 0 {\"a\": |broken 0|content </tool_call> x|"),
      of(kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": [1}}</tool_call>",
         "call 0 f|arguments 0 {\"a\": [1|broken 0|content }}</tool_call>|"),
      of(kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\": \"}",
         "call 0 f|arguments 0 {\"a\": \"}|broken 0|"),
      of(kHermes, "<tool_call>{\"name\":\"f\",\"arguments\":{}, \"b\": 1}",
         "call 0 f|arguments 0 {}|end 0|content , \"b\": 1}|"),
      whole(kLlamaJson, "I say {\"name\": \"f\", \"parameters\": {}}"),
      whole(kLlamaJson, " {\"title\": 1}"),
      whole(kPythonic, "[1, 2] is a list"),
      of(kPythonic, "[f(a=Truth)] x", "call 0 f|arguments 0 {\"a\": |broken 0|content Truth)] x|"),
      of(kPythonic, "[f(a!1)] x", "call 0 f|arguments 0 {|broken 0|content a!1)] x|"),
      whole(kMistral, "[TOOL_CALLS] none"),
      whole(kDeepSeek, "<｜tool▁calls▁begin｜><｜tool▁call▁end｜>é<｜tool"),
      whole(kGemma, "```python\nf(a=1)\n```"),
      whole(kHarmony, "No channel."),
      whole(kFunctionTag, "<function=f>[1]</function>"),
      of(kXml, "<function=f><parameter=a>1</parameter><x></function>",
         "call 0 f|arguments 0 {\"a\": 1|broken 0|content <x></function>|"),
      of(kXml, "<function=f><parameter=l>[1, two]</parameter></function>",
         "call 0 f|arguments 0 {\"l\": [1, |broken 0|content two]</parameter></function>|"),
      of(kXml, "<function=f><parameter=l>[1] 2</parameter></function>",
         "call 0 f|arguments 0 {\"l\": [1]|broken 0|content 2</parameter></function>|"),
      of(kXml, "<function=f><parameter=a>12</param",
         "call 0 f|arguments 0 {\"a\": |broken 0|content 12</param|"),
      of(kXml, "<function=f><parameter=l>[1]</param",
         "call 0 f|arguments 0 {\"l\": [1]|broken 0|content </param|"),
      of(kPythonic, "[f(a=1-2)] x", "call 0 f|arguments 0 {\"a\": |broken 0|content 1-2)] x|"),
      of(kPythonic, "[f(s='\\x4", "call 0 f|arguments 0 {\"s\": \"|broken 0|content \\x4|"),
  };
}

inline std::vector<OutputCase> ReasoningCases() {
  using enum ReasoningFormat;
  return {
      {{.reasoning = kDeepSeek}, "<think>\nWhy?\n</think>\n\nSo.", "reasoning Why?|content So.|"},
      {{.reasoning = kDeepSeek, .opens_reasoning = true},
       "Why? a </b>\n</think>So.",
       "reasoning Why? a </b>|content So.|"},
      {{.reasoning = kDeepSeek}, "\n<think>\n\n</think>\n\nSo <think>.", "content So <think>.|"},
      {{.reasoning = kDeepSeek}, "So </think>.", "content So </think>.|"},
      {{.reasoning = kDeepSeek, .opens_reasoning = true}, "Why?\n", "reasoning Why?\n|"},
      {{.reasoning = kMistral}, "[THINK]Why?[/THINK]So.", "reasoning Why?|content So.|"},
      {{.reasoning = kSeed}, "<seed:think>Why?</seed:think>So.", "reasoning Why?|content So.|"},
      {{.reasoning = kHarmony},
       "<|channel|>analysis<|message|>Why?<|end|><|start|>assistant<|channel|>final<|message|>So.",
       "reasoning Why?|content So.|"},
      {{.reasoning = kNone}, "<think>Why?</think>", "content <think>Why?</think>|"},
      {{.reasoning = kDeepSeek, .opens_reasoning = true, .tools = ToolFormat::kHermes},
       "<tool_call>{\"name\":\"no\"}</tool_call></think>\n<tool_call>{\"name\":\"f\"}</tool_call>",
       "reasoning <tool_call>{\"name\":\"no\"}</tool_call>|call 0 f|arguments 0 {}|end 0|"},
  };
}

inline std::vector<OutputCase> AllOutputCases() {
  std::vector<OutputCase> cases = ToolCases();
  for (const auto& more : {ValueCases(), MalformedCases(), ReasoningCases()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace sluice::test
