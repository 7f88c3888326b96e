// Machines of tool formats, with the types of the tools' parameters.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "sluice/tool_calls.hpp"
#include "text/markup/markup_machine.h"

namespace sluice::text {

// Whether the schema of an object says of a property that it is something else than a text.
bool IsJsonProperty(std::string_view schema, std::string_view property);

std::unique_ptr<MarkupMachine> MakeToolMachine(ToolFormat format, std::span<const Tool> tools);

}  // namespace sluice::text
