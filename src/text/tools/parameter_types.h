// Machines of tool formats, with the types of the tools' parameters.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/tool_calls.hpp"
#include "text/markup/markup_machine.h"

namespace sluice::text {

// The properties of the schema of an object that no text matches. A property without a type may be
// one.
std::vector<std::string> JsonProperties(std::string_view schema);

// A copy where the format has a use for the tools, else null.
SharedTools SharedFor(ToolFormat format, std::span<const Tool> tools);
std::unique_ptr<MarkupMachine> MakeToolMachine(ToolFormat format, const SharedTools& tools);

}  // namespace sluice::text
