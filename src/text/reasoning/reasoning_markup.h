// The markup of each format of reasoning but Harmony's, which is that of its calls.
#pragma once

#include "sluice/reasoning.hpp"
#include "text/markup/markup.h"

namespace sluice::text {

enum ReasoningState : StateNumber {
  kBeforeReasoning,
  kReasoningBegins,  // white space is markup
  kReasons,
  kAnswerBegins,
  kAnswer,
  kReasoningStates,
};

struct ReasoningTags {
  std::string_view begin;
  std::string_view end;
};
ReasoningTags TagsOf(ReasoningFormat format);  // empty: it has none

const Markup& MarkupOf(ReasoningFormat format);  // of one with tags

}  // namespace sluice::text
