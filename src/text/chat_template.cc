#include "sluice/chat_template.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "text/files/json_value.h"
#include "text/jinja/marked_text.h"
#include "text/jinja/run.h"
#include "text/jinja/syntax/parser.h"

namespace sluice {
namespace text::jinja {

class Template {
 public:
  explicit Template(Block block) : block_(std::move(block)) {}
  const Block& block() const { return block_; }

 private:
  Block block_;
};

}  // namespace text::jinja

namespace {

using text::jinja::Dict;
using text::jinja::List;
using text::jinja::Value;

// Where each member of an object goes: as in Python, a second one of a name takes its place.
// Sorting finds them, in a time that no choice of names makes longer.
std::vector<size_t> PlacesOf(simdjson::dom::object object) {
  std::vector<std::pair<std::string_view, size_t>> names;
  for (const auto member : object) names.emplace_back(member.key, names.size());
  std::sort(names.begin(), names.end());
  std::vector<size_t> first(names.size());  // of members: the first of their name
  for (size_t i = 0; i < names.size(); ++i) {
    const bool is_again = i > 0 && names[i].first == names[i - 1].first;
    first[names[i].second] = is_again ? first[names[i - 1].second] : names[i].second;
  }
  std::vector<size_t> places(names.size());
  size_t count = 0;
  for (size_t i = 0; i < first.size(); ++i) places[i] = first[i] == i ? count++ : places[first[i]];
  return places;
}

Value ValueOf(simdjson::dom::element json, int32_t depth, int32_t max_depth) {
  using Type = simdjson::dom::element_type;
  if (depth > max_depth) {
    ThrowInvalid("variables", "deeper nesting", "at most " + std::to_string(max_depth) + " levels");
  }
  switch (json.type()) {
    case Type::ARRAY: {
      List items;
      for (const auto item : simdjson::dom::array(json)) {
        items.push_back(ValueOf(item, depth + 1, max_depth));
      }
      return Value::Of(std::move(items));
    }
    case Type::OBJECT: {
      Dict members;
      const simdjson::dom::object object(json);
      const std::vector<size_t> places = PlacesOf(object);
      size_t i = 0;
      for (const auto member : object) {
        Value value = ValueOf(member.value, depth + 1, max_depth);
        if (places[i] == members.members.size()) {
          members.members.emplace_back(Value::Of(std::string(member.key)), std::move(value));
        } else {
          members.members[places[i]].second = std::move(value);
        }
        ++i;
      }
      return Value::Of(std::move(members));
    }
    case Type::INT64:
      return Value::Of(int64_t(json));
    case Type::UINT64:  // more than 2^63
    case Type::DOUBLE:
      return Value::Of(double(json));
    case Type::STRING:
      return Value::Of(std::string(std::string_view(json)));
    case Type::BOOL:
      return Value::Of(bool(json));
    case Type::NULL_VALUE:
      return {};
  }
  return {};
}

Value ObjectOf(std::string_view parameter, std::string_view json, int32_t max_depth) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  if (const auto error = parser.parse(json.data(), json.size()).get(root)) {
    ThrowInvalid(parameter, std::string("malformed (") + simdjson::error_message(error) + ")",
                 "one JSON object in UTF-8");
  }
  if (!root.is_object()) ThrowInvalid(parameter, "no object", "one JSON object in UTF-8");
  return ValueOf(root, 0, max_depth);
}

// The value of a name, where it is a string.
Value* StringOf(Dict& dict, std::string_view name) {
  for (auto& [key, value] : dict.members) {
    if (*key.AsString() == name && value.AsString() != nullptr) return &value;
  }
  return nullptr;
}

void MarkOwn(Value& value) {
  ChatText text;
  text::jinja::AppendOwn(text, *value.AsString());
  value = Value::Of(std::move(text));
}

// Templates build markers of turns from roles: "<|" ~ message.role ~ "|>". These words are safe in
// them; another role is as foreign as a content.
constexpr std::array<std::string_view, 8> kRoles = {"system", "developer", "user",    "assistant",
                                                    "tool",   "function",  "ipython", "model"};

void MarkOwn(const Dict& own, Dict& variables) {
  for (const auto& [key, text] : own.members) {
    Value* found = text.AsString() == nullptr ? nullptr : StringOf(variables, *key.AsString());
    if (found != nullptr && *found->AsString() == *text.AsString()) MarkOwn(*found);
  }
  for (auto& [key, messages] : variables.members) {
    if (*key.AsString() != "messages" || messages.AsList() == nullptr) continue;
    for (Value& message : *messages.AsList()) {
      Value* role = message.AsDict() == nullptr ? nullptr : StringOf(*message.AsDict(), "role");
      if (role != nullptr && std::ranges::find(kRoles, *role->AsString()) != kRoles.end()) {
        MarkOwn(*role);
      }
    }
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, const ChatTemplateLimits& limits)
    : limits_(limits) {
  CheckInRange("limits.max_depth", limits.max_depth, 1, 500);
  CheckInRange("template.size()", static_cast<int64_t>(source.size()), 0,
               static_cast<int64_t>(limits.max_template_bytes));
  template_ =
      std::make_shared<const text::jinja::Template>(text::jinja::Parse(source, limits.max_depth));
}

std::string ChatTemplate::Render(std::string_view variables, std::optional<int64_t> seconds) const {
  return RenderText(variables, "{}", seconds).text;
}

ChatText ChatTemplate::RenderText(std::string_view variables, std::string_view own_variables,
                                  std::optional<int64_t> seconds) const {
  const Value values = ObjectOf("variables", variables, limits_.max_depth);
  const Value own = ObjectOf("own_variables", own_variables, limits_.max_depth);
  MarkOwn(*own.AsDict(), *values.AsDict());
  text::jinja::Run run(limits_, seconds);
  return run.Render(template_->block(), values);
}

}  // namespace sluice
