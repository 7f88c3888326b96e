#include "sluice/tool_calls.hpp"

#include <algorithm>
#include <array>

#include "support/check.h"
#include "text/markup/markup_machine.h"
#include "text/tools/parameter_types.h"
#include "text/tools/tool_markup.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 12> kNames = {
    "none", "hermes", "llama_json", "pythonic",    "mistral",      "deepseek",
    "kimi", "gemma",  "harmony",    "functionary", "function_tag", "xml"};
constexpr size_t kLongestToolName = 64;

bool IsToolName(std::string_view name) {
  const bool has_length = !name.empty() && name.size() <= kLongestToolName;
  return has_length &&
         std::ranges::all_of(name, [](char byte) { return byte != '.' && text::IsNameByte(byte); });
}

}  // namespace

std::string_view Name(ToolFormat format) { return kNames[static_cast<size_t>(format)]; }

std::span<const std::string_view> ToolFormatNames() { return kNames; }

ToolFormat ToolFormatByName(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<ToolFormat>(found - kNames.begin());
  std::string allowed;
  for (const std::string_view known : kNames) {
    allowed.append(allowed.empty() ? "" : ", ").append(known);
  }
  ThrowInvalid("tool_format", ToText(name), allowed);
}

ToolFormat DetectToolFormat(std::string_view template_source) {
  const auto has = [&](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  if (has("<|channel|>") && has("commentary")) return ToolFormat::kHarmony;
  if (has("<｜tool▁calls▁begin｜>")) return ToolFormat::kDeepSeek;
  if (has("<|tool_calls_section_begin|>")) return ToolFormat::kKimi;
  if (has("[TOOL_CALLS]")) return ToolFormat::kMistral;
  if (has(">>>all") || has(">>>'")) return ToolFormat::kFunctionary;
  if (has("<function=")) return has("<parameter=") ? ToolFormat::kXml : ToolFormat::kFunctionTag;
  if (has("<tool_call>") && has("</tool_call>") && !has("<arg_key>")) return ToolFormat::kHermes;
  if (has("<|tool_call_start|>") || has("[func_name1(") || has("<|python_start|>")) {
    return ToolFormat::kPythonic;
  }
  if (has("<|start_header_id|>") && (has("<|python_tag|>") || has("ipython"))) {
    return ToolFormat::kLlamaJson;
  }
  if (has("tool_code") || (has("<start_of_turn>") && has("tools"))) return ToolFormat::kGemma;
  return ToolFormat::kNone;
}

std::span<const std::string_view> MarkersOf(ToolFormat format) {
  if (format == ToolFormat::kNone) return {};
  return text::MarkupOf(format).markers;
}

void CheckTools(std::span<const Tool> tools, std::string_view member) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string place = "tools[" + std::to_string(i) + "]." + std::string(member);
    if (!IsToolName(tools[i].name)) {
      ThrowInvalid(place, ToText(std::string_view(tools[i].name)),
                   "1 to 64 letters, digits, _ and -");
    }
    const bool is_again = std::ranges::any_of(
        tools.first(i), [&](const Tool& other) { return other.name == tools[i].name; });
    if (is_again) {
      ThrowInvalid(place, ToText(std::string_view(tools[i].name)),
                   "a name that no tool before it has");
    }
  }
}

ToolCallParser::ToolCallParser(ToolFormat format, std::span<const Tool> tools)
    : machine_(format == ToolFormat::kNone
                   ? nullptr
                   : text::MakeToolMachine(format, text::SharedFor(format, tools))) {}
ToolCallParser::~ToolCallParser() = default;
ToolCallParser::ToolCallParser(ToolCallParser&&) noexcept = default;
ToolCallParser& ToolCallParser::operator=(ToolCallParser&&) noexcept = default;

void ToolCallParser::Step(std::string_view text, OutputParts& parts) {
  if (machine_ == nullptr) {
    parts.Append(PartKind::kContent, -1, text);
  } else {
    machine_->Step(text, parts);
  }
}

void ToolCallParser::Finish(OutputParts& parts) {
  if (machine_ != nullptr) machine_->Finish(parts);
}

size_t ToolCallParser::held_bytes() const { return machine_ ? machine_->held_bytes() : 0; }
int32_t ToolCallParser::calls() const { return machine_ ? machine_->calls() : 0; }

}  // namespace sluice
