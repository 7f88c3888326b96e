#include "text/tools/parameter_types.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "text/tools/tool_markup.h"

namespace sluice::text {
namespace {

namespace dom = simdjson::dom;

// To a branch of a union or along a reference: of one property, and of all of a schema.
constexpr int kMostSteps = 256;
constexpr int kMostStepsOfAll = 16 * kMostSteps;

class TextCheck {
 public:
  explicit TextCheck(dom::element root) : root_(root) {}

  bool AllowsText(dom::element property) {
    left_ = std::min(kMostSteps, left_of_all_);
    const int before = left_;
    const bool allows = Allows(property);
    left_of_all_ -= before - left_;
    return allows;
  }

 private:
  bool Allows(dom::element schema) {
    dom::object object;
    if (schema.get(object) != simdjson::SUCCESS) return true;
    dom::element value;
    dom::array list;
    if (object["type"].get(value) == simdjson::SUCCESS) {
      if (value.is_string()) return std::string_view(value) == "string";
      return value.get(list) != simdjson::SUCCESS || AnyOf(list, [](dom::element one) {
               return !one.is_string() || std::string_view(one) == "string";
             });
    }
    if (object["enum"].get(list) == simdjson::SUCCESS) {
      return AnyOf(list, [](dom::element one) { return one.is_string(); });
    }
    if (object["const"].get(value) == simdjson::SUCCESS) return value.is_string();
    std::string_view ref;
    if (object["$ref"].get(ref) == simdjson::SUCCESS) {
      const bool is_found =
          ref.starts_with("#/") && root_.at_pointer(ref.substr(1)).get(value) == simdjson::SUCCESS;
      return !is_found || StepTo(value);
    }
    if (object["allOf"].get(list) == simdjson::SUCCESS) {
      return std::all_of(list.begin(), list.end(), [&](dom::element one) { return StepTo(one); });
    }
    for (const std::string_view key : {"anyOf", "oneOf"}) {
      if (object[key].get(list) == simdjson::SUCCESS) {
        return AnyOf(list, [&](dom::element one) { return StepTo(one); });
      }
    }
    return true;
  }

  template <typename Test>
  static bool AnyOf(dom::array list, Test test) {
    return std::any_of(list.begin(), list.end(), test);
  }
  bool StepTo(dom::element schema) { return left_ == 0 || (--left_, Allows(schema)); }

  dom::element root_;
  int left_ = 0;
  int left_of_all_ = kMostStepsOfAll;
};

}  // namespace

std::vector<std::string> JsonProperties(std::string_view schema) {
  std::vector<std::string> names;
  dom::parser parser;
  dom::element root;
  dom::object properties;
  if (parser.parse(schema.data(), schema.size()).get(root) != simdjson::SUCCESS) return names;
  if (root["properties"].get(properties) != simdjson::SUCCESS) return names;
  TextCheck check(root);
  for (const auto property : properties) {
    if (!check.AllowsText(property.value)) names.emplace_back(property.key);
  }
  return names;
}

SharedTools SharedFor(ToolFormat format, std::span<const Tool> tools) {
  if (format != ToolFormat::kXml) return nullptr;
  return std::make_shared<const std::vector<Tool>>(tools.begin(), tools.end());
}

std::unique_ptr<MarkupMachine> MakeToolMachine(ToolFormat format, const SharedTools& tools) {
  MarkupMachine::JsonKeys json_keys;
  if (format == ToolFormat::kXml && tools != nullptr) {
    json_keys = [known = tools](std::string_view tool) {
      const auto found = std::ranges::find(*known, tool, &Tool::name);
      return found == known->end() ? std::vector<std::string>() : JsonProperties(found->parameters);
    };
  }
  return std::make_unique<MarkupMachine>(MarkupOf(format), kAtStart, std::move(json_keys));
}

}  // namespace sluice::text
