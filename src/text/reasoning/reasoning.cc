#include "sluice/reasoning.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "support/check.h"
#include "text/markup/markup_machine.h"
#include "text/reasoning/reasoning_markup.h"
#include "text/tools/parameter_types.h"
#include "text/tools/tool_markup.h"

namespace sluice {
namespace text {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"none", "deepseek", "mistral", "seed",
                                                    "harmony"};

Markup Tagged(ReasoningTags tags) {
  constexpr std::string_view kAnySpaces("\x01", 1);
  Markup markup;
  markup.states.resize(kReasoningStates);
  markup.broken = kAnswer;
  markup.markers = {tags.begin, tags.end};
  markup.states[kBeforeReasoning] = {.otherwise = kAnswer};
  markup.states[kReasoningBegins] = {
      .text = PartKind::kReasoning, .otherwise = kReasons, .skips_space = true};
  markup.states[kReasons] = {.text = PartKind::kReasoning, .otherwise = kReasons};
  markup.states[kAnswerBegins] = {.otherwise = kAnswer, .skips_space = true};
  markup.states[kAnswer] = {.otherwise = kAnswer};
  const std::string begin = std::string(kAnySpaces).append(tags.begin);
  const std::string end = std::string(kAnySpaces).append(tags.end);
  markup.Add({kBeforeReasoning, kReasoningBegins}, begin, Arguments::kNoCall, kReasoningBegins);
  markup.Add({kReasoningBegins, kReasons}, end, Arguments::kNoCall, kAnswerBegins);
  return markup;
}

}  // namespace

ReasoningTags TagsOf(ReasoningFormat format) {
  switch (format) {
    case ReasoningFormat::kDeepSeek:
      return {"<think>", "</think>"};
    case ReasoningFormat::kMistral:
      return {"[THINK]", "[/THINK]"};
    case ReasoningFormat::kSeed:
      return {"<seed:think>", "</seed:think>"};
    case ReasoningFormat::kNone:
    case ReasoningFormat::kHarmony:
      break;
  }
  return {};
}

const Markup& MarkupOf(ReasoningFormat format) {
  static const std::array<Markup, 3> kMarkups = {Tagged(TagsOf(ReasoningFormat::kDeepSeek)),
                                                 Tagged(TagsOf(ReasoningFormat::kMistral)),
                                                 Tagged(TagsOf(ReasoningFormat::kSeed))};
  if (TagsOf(format).end.empty()) ThrowInvalid("format", ToText(Name(format)), "one with tags");
  return kMarkups[static_cast<size_t>(format) - 1];
}

}  // namespace text

std::string_view Name(ReasoningFormat format) { return text::kNames[static_cast<size_t>(format)]; }

std::span<const std::string_view> ReasoningFormatNames() { return text::kNames; }

ReasoningFormat ReasoningFormatByName(std::string_view name) {
  const auto* const found = std::ranges::find(text::kNames, name);
  if (found != text::kNames.end()) {
    return static_cast<ReasoningFormat>(found - text::kNames.begin());
  }
  std::string allowed;
  for (const std::string_view known : text::kNames) {
    allowed.append(allowed.empty() ? "" : ", ").append(known);
  }
  ThrowInvalid("reasoning_format", ToText(name), allowed);
}

ReasoningFormat DetectReasoningFormat(std::string_view template_source) {
  const auto has = [&](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  if (has("<|channel|>analysis")) return ReasoningFormat::kHarmony;
  if (has("<seed:think>")) return ReasoningFormat::kSeed;
  if (has("[THINK]")) return ReasoningFormat::kMistral;
  if (has("<think>") || has("</think>")) return ReasoningFormat::kDeepSeek;
  return ReasoningFormat::kNone;
}

std::span<const std::string_view> MarkersOf(ReasoningFormat format) {
  if (format == ReasoningFormat::kHarmony) return MarkersOf(ToolFormat::kHarmony);
  if (format == ReasoningFormat::kNone) return {};
  return text::MarkupOf(format).markers;
}

bool OpensReasoning(ReasoningFormat format, std::string_view prompt) {
  const std::string_view begin = text::TagsOf(format).begin;
  if (begin.empty()) return false;
  while (!prompt.empty() && text::IsSpace(prompt.back())) prompt.remove_suffix(1);
  return prompt.ends_with(begin);
}

// White space may come after the marker, and each of its bytes may be a token.
bool OpensReasoning(ReasoningFormat format, const Tokenizer& tokenizer,
                    std::span<const int32_t> prompt) {
  constexpr size_t kLast = 32;
  return OpensReasoning(format,
                        tokenizer.Decode(prompt.last(std::min(prompt.size(), kLast)), false));
}

std::string_view ReasoningEnd(ReasoningFormat format) { return text::TagsOf(format).end; }

ReasoningPlace::ReasoningPlace(ReasoningFormat format, const Tokenizer& tokenizer, bool is_open)
    : begin_(text::TagsOf(format).begin),
      end_(text::TagsOf(format).end),
      part_(is_open ? Part::kReasoning : Part::kBefore) {
  if (end_.empty()) {
    ThrowInvalid("thinking.format", ToText(Name(format)), "one with a text that ends reasoning");
  }
  begin_id_ = tokenizer.Id(begin_).value_or(-1);
  end_id_ = tokenizer.Id(end_).value_or(-1);
}

// No marker has its first byte twice, so a byte that does not match leaves at most itself matched.
size_t ReasoningPlace::Step(int32_t id, std::string_view text) {
  if (part_ == Part::kAnswer) return 0;
  const bool is_begin = part_ == Part::kBefore && matched_ == 0 && id == begin_id_;
  if (id >= 0 && (is_begin || (part_ == Part::kReasoning && id == end_id_))) {
    part_ = part_ == Part::kBefore ? Part::kReasoning : Part::kAnswer;
    matched_ = 0;
    return text.size();
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view marker = part_ == Part::kBefore ? begin_ : end_;
    const char byte = text[i];
    if (byte == marker[matched_]) {
      ++matched_;
    } else if (part_ == Part::kReasoning) {
      matched_ = byte == marker[0] ? 1 : 0;
    } else if (matched_ > 0 || !text::IsSpace(byte)) {
      part_ = Part::kAnswer;  // all of it, what came before included
      matched_ = 0;
      return 0;
    }
    if (matched_ < marker.size()) continue;
    matched_ = 0;
    if (part_ == Part::kReasoning) {
      part_ = Part::kAnswer;
      return i + 1;
    }
    part_ = Part::kReasoning;
  }
  return text.size();
}

OutputParser::OutputParser(const OutputFormat& format, std::span<const Tool> tools)
    : OutputParser(format, text::SharedFor(format.tools, tools)) {}

OutputParser::OutputParser(const OutputFormat& format, const SharedTools& tools) {
  const bool is_harmony =
      format.reasoning == ReasoningFormat::kHarmony || format.tools == ToolFormat::kHarmony;
  const ToolFormat tool_format = is_harmony ? ToolFormat::kHarmony : format.tools;
  if (!is_harmony && format.reasoning != ReasoningFormat::kNone) {
    const text::StateNumber first =
        format.opens_reasoning ? text::kReasoningBegins : text::kBeforeReasoning;
    reasoning_ = std::make_unique<text::MarkupMachine>(text::MarkupOf(format.reasoning), first);
  }
  if (tool_format != ToolFormat::kNone) tools_ = text::MakeToolMachine(tool_format, tools);
}
OutputParser::~OutputParser() = default;
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;

void OutputParser::Step(std::string_view text, OutputParts& parts) {
  if (reasoning_ != nullptr) {
    reasoning_->Step(text, split_);
    ReadAnswer(parts);
  } else if (tools_ != nullptr) {
    tools_->Step(text, parts);
  } else {
    parts.Append(PartKind::kContent, -1, text);
  }
}

void OutputParser::Finish(OutputParts& parts) {
  if (reasoning_ != nullptr) {
    reasoning_->Finish(split_);
    ReadAnswer(parts);
  }
  if (tools_ != nullptr) tools_->Finish(parts);
}

void OutputParser::ReadAnswer(OutputParts& parts) {
  for (size_t i = 0; i < split_.size(); ++i) {
    const OutputPart part = split_[i];
    if (part.kind == PartKind::kContent && tools_ != nullptr) {
      tools_->Step(part.text, parts);
    } else {
      parts.Append(part.kind, part.call, part.text);
    }
  }
  split_.Clear();
}

size_t OutputParser::held_bytes() const {
  return (reasoning_ ? reasoning_->held_bytes() : 0) + (tools_ ? tools_->held_bytes() : 0);
}

int32_t OutputParser::calls() const { return tools_ ? tools_->calls() : 0; }

}  // namespace sluice
