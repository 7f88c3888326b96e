// The markup of each format of tool calls.
#pragma once

#include "sluice/tool_calls.hpp"
#include "text/markup/markup.h"

namespace sluice::text {

// The states that all of these tables have.
enum ToolState : StateNumber {
  kAtStart,    // of the output: calls without a marker may come here alone
  kInText,     // after some text
  kAfterCall,  // white space and further calls
  kInObject,   // after the arguments in an object of JSON
  kInList,     // after a call in a list
  kToClose,    // before the marker that ends a call
  kInReasoning,
  kBetweenMessages,
  kToolStates,
};

// Lives as long as the program. kNone has none.
const Markup& MarkupOf(ToolFormat format);

}  // namespace sluice::text
