#include "text/tools/parameter_types.h"

#include <simdjson.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/tools/tool_markup.h"

namespace sluice::text {

bool IsJsonProperty(std::string_view schema, std::string_view property) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::element found;
  simdjson::dom::element type;
  if (parser.parse(schema.data(), schema.size()).get(root) != simdjson::SUCCESS) return false;
  if (root["properties"][property].get(found) != simdjson::SUCCESS) return false;
  if (found["type"].get(type) != simdjson::SUCCESS) return false;
  if (type.is_string()) return std::string_view(type) != "string";
  simdjson::dom::array types;
  if (type.get(types) != simdjson::SUCCESS) return false;
  for (const simdjson::dom::element one : types) {
    if (!one.is_string() || std::string_view(one) == "string") return false;
  }
  return true;
}

std::unique_ptr<MarkupMachine> MakeToolMachine(ToolFormat format, std::span<const Tool> tools) {
  MarkupMachine::IsJson is_json;
  if (format == ToolFormat::kXml) {
    is_json = [known = std::vector<Tool>(tools.begin(), tools.end())](std::string_view tool,
                                                                      std::string_view property) {
      const auto found = std::ranges::find(known, tool, &Tool::name);
      return found != known.end() && IsJsonProperty(found->parameters, property);
    };
  }
  return std::make_unique<MarkupMachine>(MarkupOf(format), kAtStart, std::move(is_json));
}

}  // namespace sluice::text
