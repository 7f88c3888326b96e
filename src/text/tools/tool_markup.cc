#include "text/tools/tool_markup.h"

#include <array>

#include "support/check.h"

namespace sluice::text {
namespace {

// Texts of patterns, which literals are joined from.
#define SPACE "\x01"
#define NAME "\x02"
#define WORD "\x03"
#define DIGITS "\x04"
#define OBJECT "\x05"

constexpr std::string_view kFence = "```";

Markup Empty(std::initializer_list<std::string_view> markers) {
  Markup markup;
  markup.states.resize(kToolStates);
  markup.broken = kInText;
  markup.markers = markers;
  for (MarkupState& state : markup.states) state.otherwise = kInText;
  markup.states[kInReasoning] = {.text = PartKind::kReasoning, .otherwise = kInReasoning};
  for (const StateNumber state : {kAfterCall, kInObject, kInList, kToClose, kBetweenMessages}) {
    markup.states[state].drops_space = true;
  }
  return markup;
}

// A call that may come anywhere, as it has a marker of its own.
void AddAnywhere(Markup& to, const std::string& pattern, Arguments arguments, StateNumber next) {
  to.Add({kInText}, pattern, arguments, next);
  to.Add({kAtStart, kAfterCall}, SPACE + pattern, arguments, next);
}

template <typename Add>
void AddObject(const std::string& before, Add add) {
  for (const std::string first : {"", "\"type\"" SPACE ":" SPACE "\"function\"" SPACE "," SPACE,
                                  "\"id\"" SPACE ":" SPACE "\"" WORD "\"" SPACE "," SPACE}) {
    const std::string head =
        before + "{" SPACE + first + "\"name\"" SPACE ":" SPACE "\"" NAME "\"" SPACE;
    for (const char* const key : {"arguments", "parameters"}) {
      add(head + "," SPACE "\"" + key + "\"" SPACE ":" SPACE OBJECT, Arguments::kJson, false);
    }
    add(head + "}", Arguments::kEmpty, true);
  }
}

// A call as an object of JSON, after `before`. After it comes `next`.
void AddObjects(Markup& to, std::initializer_list<StateNumber> from, const std::string& before,
                StateNumber next) {
  AddObject(before, [&](const std::string& pattern, Arguments arguments, bool is_whole) {
    to.Add(from, pattern, arguments, is_whole ? next : StateNumber{kInObject});
  });
}

void AddObjectsAnywhere(Markup& to, const std::string& before, StateNumber next) {
  AddObjects(to, {kInText}, before, next);
  AddObjects(to, {kAtStart, kAfterCall}, SPACE + before, next);
}

void AddObjectEnd(Markup& to, StateNumber next) {
  to.Add({kInObject}, SPACE "}", Arguments::kNoCall, next);
  to.Add({kInObject}, SPACE "," SPACE "\"id\"" SPACE ":" SPACE "\"" WORD "\"" SPACE "}",
         Arguments::kNoCall, next);
}

Markup Hermes() {
  Markup markup = Empty({"<tool_call>", "</tool_call>"});
  AddObjectsAnywhere(markup, "<tool_call>" SPACE, kToClose);
  AddObjectEnd(markup, kToClose);
  markup.Add({kToClose}, SPACE "</tool_call>", Arguments::kNoCall, kAfterCall);
  return markup;
}

Markup LlamaJson() {
  Markup markup = Empty({"<|python_tag|>"});
  AddObjectsAnywhere(markup, "<|python_tag|>" SPACE, kAfterCall);
  AddObjects(markup, {kAtStart}, SPACE, kAfterCall);
  AddObjects(markup, {kAfterCall}, SPACE ";" SPACE, kAfterCall);
  AddObjectEnd(markup, kAfterCall);
  return markup;
}

Markup Pythonic() {
  Markup markup = Empty({"<|python_start|>", "<|python_end|>", "<|python_tag|>",
                         "<|tool_call_start|>", "<|tool_call_end|>"});
  for (const char* const begin : {"<|tool_call_start|>", "<|python_start|>", "<|python_tag|>"}) {
    AddAnywhere(markup, std::string(begin) + SPACE "[" SPACE NAME "(", Arguments::kPython, kInList);
  }
  markup.Add({kAtStart}, SPACE "[" SPACE NAME "(", Arguments::kPython, kInList);
  markup.Add({kInList}, SPACE "," SPACE NAME "(", Arguments::kPython, kInList);
  markup.Add({kInList}, SPACE "]", Arguments::kNoCall, kAfterCall);
  for (const char* const end : {"<|tool_call_end|>", "<|python_end|>"}) {
    markup.Add({kAfterCall}, std::string(SPACE) + end, Arguments::kNoCall, kAfterCall);
  }
  // As ToolGrammar binds it.
  AddObjects(markup, {kAtStart}, SPACE, kAfterCall);
  AddObjects(markup, {kAfterCall}, SPACE ";" SPACE, kAfterCall);
  AddObjectEnd(markup, kAfterCall);
  return markup;
}

Markup Mistral() {
  Markup markup = Empty({"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"});
  AddObjectsAnywhere(markup, "[TOOL_CALLS]" SPACE "[" SPACE, kInList);
  AddObjects(markup, {kInList}, SPACE "," SPACE, kInList);
  AddObjectEnd(markup, kInList);
  markup.Add({kInList}, SPACE "]", Arguments::kNoCall, kAfterCall);
  for (const char *const rest :
       {SPACE OBJECT, "[ARGS]" SPACE OBJECT, "[CALL_ID]" WORD "[ARGS]" SPACE OBJECT}) {
    AddAnywhere(markup, std::string("[TOOL_CALLS]" SPACE NAME) + rest, Arguments::kJson,
                kAfterCall);
  }
  return markup;
}

Markup DeepSeek() {
  Markup markup = Empty({"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>",
                         "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"});
  const std::string fenced = std::string("<｜tool▁call▁begin｜>function<｜tool▁sep｜>" NAME "\n")
                                 .append(kFence)
                                 .append("json\n" OBJECT);
  const std::string plain = "<｜tool▁call▁begin｜>" NAME "<｜tool▁sep｜>" SPACE OBJECT;
  for (const std::string& call : {fenced, plain}) {
    AddAnywhere(markup, "<｜tool▁calls▁begin｜>" SPACE + call, Arguments::kJson, kToClose);
    markup.Add({kInList}, SPACE + call, Arguments::kJson, kToClose);
  }
  markup.Add({kToClose}, SPACE "<｜tool▁call▁end｜>", Arguments::kNoCall, kInList);
  markup.Add({kToClose}, std::string(SPACE).append(kFence) + SPACE "<｜tool▁call▁end｜>",
             Arguments::kNoCall, kInList);
  markup.Add({kInList}, SPACE "<｜tool▁calls▁end｜>", Arguments::kNoCall, kAfterCall);
  return markup;
}

Markup Kimi() {
  Markup markup =
      Empty({"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
             "<|tool_call_end|>", "<|tool_calls_section_end|>"});
  // A name ends where the colon does.
  const std::string call = "<|tool_call_begin|>" SPACE "functions." NAME ":" DIGITS SPACE
                           "<|tool_call_argument_begin|>" SPACE OBJECT;
  AddAnywhere(markup, "<|tool_calls_section_begin|>" SPACE + call, Arguments::kJson, kToClose);
  markup.Add({kInList}, SPACE + call, Arguments::kJson, kToClose);
  markup.Add({kToClose}, SPACE "<|tool_call_end|>", Arguments::kNoCall, kInList);
  markup.Add({kInList}, SPACE "<|tool_calls_section_end|>", Arguments::kNoCall, kAfterCall);
  return markup;
}

Markup Gemma() {
  Markup markup = Empty({});
  const std::string fence(kFence);
  AddAnywhere(markup, fence + "tool_code\n" SPACE NAME "(", Arguments::kPython, kInList);
  markup.Add({kInList}, SPACE NAME "(", Arguments::kPython, kInList);
  AddObjectsAnywhere(markup, fence + "json\n" SPACE, kToClose);
  AddObjectEnd(markup, kToClose);
  markup.Add({kInList, kToClose}, SPACE + fence, Arguments::kNoCall, kAfterCall);
  return markup;
}

Markup Functionary() {
  Markup markup = Empty({});
  // The prompt may have the first marker.
  markup.Add({kAtStart}, "all\n", Arguments::kNoCall, kInText);
  markup.Add({kAtStart}, NAME "\n" SPACE OBJECT, Arguments::kJson, kAfterCall);
  markup.Add({kAtStart, kAfterCall}, SPACE ">>>all\n", Arguments::kNoCall, kInText);
  AddAnywhere(markup, ">>>" NAME "\n" SPACE OBJECT, Arguments::kJson, kAfterCall);
  return markup;
}

Markup FunctionTag() {
  Markup markup = Empty({"<function=", "</function>"});
  AddAnywhere(markup, "<function=" NAME ">" SPACE OBJECT, Arguments::kJson, kToClose);
  markup.Add({kToClose}, SPACE "</function>", Arguments::kNoCall, kAfterCall);
  return markup;
}

Markup Xml() {
  Markup markup = Empty(
      {"<tool_call>", "</tool_call>", "<function=", "</function>", "<parameter=", "</parameter>"});
  AddAnywhere(markup, "<tool_call>" SPACE "<function=" NAME ">", Arguments::kElements, kToClose);
  AddAnywhere(markup, "<function=" NAME ">", Arguments::kElements, kToClose);
  markup.Add({kToClose}, SPACE "</tool_call>", Arguments::kNoCall, kAfterCall);
  return markup;
}

Markup Harmony() {
  Markup markup = Empty({"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>",
                         "<|return|>", "<|call|>"});
  const auto add = [&](const std::string& head, Arguments arguments, StateNumber next) {
    markup.Add({kAtStart}, SPACE + head, arguments, next);
    markup.Add({kBetweenMessages, kInText, kInReasoning}, "<|start|>assistant" SPACE + head,
               arguments, next);
  };
  const std::string message = SPACE "<|message|>";
  add("<|channel|>analysis" + message, Arguments::kNoCall, kInReasoning);
  for (const char* const channel : {"<|channel|>final", "<|channel|>commentary"}) {
    add(channel + message, Arguments::kNoCall, kInText);
    add(channel + std::string(SPACE "<|constrain|>" WORD) + message, Arguments::kNoCall, kInText);
  }
  for (const char* const form : {SPACE "<|constrain|>json", SPACE "json", ""}) {
    const std::string rest = form + message + SPACE OBJECT;
    for (const char* const channel : {"<|channel|>commentary", "<|channel|>analysis"}) {
      add(std::string(channel) + SPACE "to=functions." NAME + rest, Arguments::kJson, kToClose);
      add("to=functions." NAME SPACE + std::string(channel) + rest, Arguments::kJson, kToClose);
    }
  }
  for (const char* const end : {"<|end|>", "<|return|>", "<|call|>"}) {
    markup.Add({kInText, kInReasoning}, end, Arguments::kNoCall, kBetweenMessages);
    markup.Add({kToClose}, std::string(SPACE) + end, Arguments::kNoCall, kBetweenMessages);
  }
  return markup;
}

}  // namespace

const Markup& MarkupOf(ToolFormat format) {
  static const std::array<Markup, 11> kMarkups = {
      Hermes(), LlamaJson(), Pythonic(),    Mistral(),     DeepSeek(), Kimi(),
      Gemma(),  Harmony(),   Functionary(), FunctionTag(), Xml()};
  if (format == ToolFormat::kNone) ThrowInvalid("format", "none", "a format with markup");
  return kMarkups[static_cast<size_t>(format) - 1];
}

}  // namespace sluice::text
