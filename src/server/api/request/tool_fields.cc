#include "server/api/request/tool_fields.h"

#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "server/api/json_text.h"
#include "server/api/request/unsupported.h"
#include "support/number.h"

namespace sluice::server {
namespace {

namespace dom = simdjson::dom;
using json::json_type;

constexpr std::string_view kChoices =
    R"(none, auto, required or {"type": "function", "function": {"name": ...}})";

constexpr size_t kMostShown = 60;

// The part that an error shows.
std::string ShownText(std::string shown) {
  if (shown.size() > kMostShown) shown = shown.substr(0, kMostShown - 3) + "...";
  return std::all_of(shown.begin(), shown.end(), [](char c) { return c >= ' ' && c < 127; })
             ? shown
             : "a value";
}

std::string Shown(dom::element value) { return ShownText(simdjson::minify(value)); }

// The text of a member; empty where it is absent or null.
std::string TextOf(dom::object object, std::string_view key, const std::string& name) {
  dom::element value;
  if (object[key].get(value) != simdjson::SUCCESS || value.is_null()) return "";
  if (!value.is_string()) ThrowInvalid(name, Shown(value), "a text");
  return std::string(std::string_view(value));
}

dom::object ObjectOf(dom::object object, std::string_view key, const std::string& name) {
  dom::element value;
  dom::object member;
  if (object[key].get(value) != simdjson::SUCCESS) ThrowInvalid(name, "", "an object");
  if (value.get(member) != simdjson::SUCCESS) ThrowInvalid(name, Shown(value), "an object");
  return member;
}

void CheckType(dom::object object, const std::string& name) {
  const std::string type = TextOf(object, "type", name);
  if (type != "function") ThrowInvalid(name, type.empty() ? "" : ToText(type), "\"function\"");
}

// place: of the tool.
Tool ReadFunction(dom::object function, const std::string& place, std::string_view parameters_key,
                  const ToolFieldNames& names) {
  const std::string name = place + std::string(names.name);
  Tool tool = {.name = TextOf(function, "name", name)};
  if (tool.name.empty()) ThrowInvalid(name, "", "1 to 64 letters, digits, _ and -");
  dom::element parameters;
  if (function[parameters_key].get(parameters) == simdjson::SUCCESS && !parameters.is_null()) {
    const std::string field = place + std::string(names.parameters);
    if (!parameters.is_object()) {
      ThrowInvalid(field, Shown(parameters), "a JSON schema of an object");
    }
    dom::element type;
    if (parameters["type"].get(type) == simdjson::SUCCESS &&
        (!type.is_string() || std::string_view(type) != "object")) {
      ThrowInvalid(field + ".type", Shown(type), "\"object\"");
    }
    tool.parameters = simdjson::minify(parameters);
    if (tool.parameters == "{}") tool.parameters.clear();
  }
  dom::element strict;
  if (function["strict"].get(strict) == simdjson::SUCCESS && !strict.is_null()) {
    if (!strict.is_bool()) {
      ThrowInvalid(place + std::string(names.strict), Shown(strict), "true or false");
    }
    tool.is_strict = bool(strict);
  }
  return tool;
}

Tool ReadTool(dom::object object, const std::string& place) {
  CheckType(object, place + ".type");
  const dom::object function = ObjectOf(object, "function", place + ".function");
  return ReadFunction(function, place, "parameters", {});
}

// As a template gets it.
std::string JsonOfFlat(dom::object object, const std::string& place, std::string_view key) {
  std::string json = R"({"type":"function","function":{"name":)";
  AppendQuoted(json, TextOf(object, "name", place + ".name"));
  dom::element description;
  if (object["description"].get(description) == simdjson::SUCCESS && !description.is_null()) {
    json.append(R"(,"description":)");
    AppendQuoted(json, TextOf(object, "description", place + ".description"));
  }
  dom::element parameters;
  if (object[key].get(parameters) == simdjson::SUCCESS && !parameters.is_null()) {
    json.append(R"(,"parameters":)").append(simdjson::minify(parameters));
  }
  return json.append("}}");
}

void AddUnknownMembers(dom::object object, const FlatTools& flat,
                       std::vector<std::string>& unknown) {
  constexpr std::string_view kMembers[] = {"type", "name", "description", "strict"};
  for (const dom::key_value_pair member : object) {
    const bool is_known = member.key == flat.parameters_key || member.value.is_null() ||
                          std::ranges::count(kMembers, member.key) > 0 ||
                          std::ranges::count(flat.without_effect, member.key) > 0;
    if (!is_known) AddUnknown(std::string("tools[].").append(member.key), unknown);
  }
}

// What a value has, to be read as often as is needed.
class Parsed {
 public:
  explicit Parsed(const RequestValue& value) {
    AppendJson(value, json_);
    if (parser_.parse(json_).get(root_) != simdjson::SUCCESS) {
      ThrowInvalid(value.name(), "a value that cannot be read", "JSON");
    }
  }
  dom::element root() const { return root_; }
  std::string& json() { return json_; }

  // use(object, place)
  template <typename Use>
  void ForEachObject(std::string_view name, Use use) const {
    dom::array list;
    if (root_.get(list) != simdjson::SUCCESS) ThrowInvalid(name, Shown(root_), "a list");
    size_t number = 0;
    for (const dom::element element : list) {
      const std::string place = std::string(name).append("[").append(Number(number++)) + "]";
      dom::object object;
      if (element.get(object) != simdjson::SUCCESS) {
        ThrowInvalid(place, Shown(element), "an object");
      }
      use(object, place);
    }
  }

 private:
  std::string json_;
  dom::parser parser_;
  dom::element root_;
};

// read(object, place): gives a Tool.
template <typename Read>
void ReadEach(ToolRequest& to, std::string_view field, Parsed& parsed, Read read) {
  if (parsed.json().size() > kMostToolBytes) {
    ThrowInvalid("tools", Number(parsed.json().size()) + " bytes",
                 "at most " + Number(kMostToolBytes) + " bytes");
  }
  parsed.ForEachObject(field, [&](dom::object object, const std::string& place) {
    if (to.tools.size() == kMostTools) {
      ThrowInvalid("tools", "a list of more than " + Number(kMostTools),
                   "at most " + Number(kMostTools) + " tools");
    }
    to.tools.push_back(read(object, place));
  });
  CheckTools(to.tools, to.names.name.substr(1));
}

void ReadTools(ToolRequest& to, const RequestValue& value) {
  Parsed parsed(value);
  ReadEach(to, value.name(), parsed, ReadTool);
  if (!to.tools.empty()) to.json = std::move(parsed.json());
}

void ReadChoice(ToolRequest& to, const RequestValue& value) {
  const Parsed parsed(value);
  dom::object object;
  if (parsed.root().get(object) == simdjson::SUCCESS) {
    CheckType(object, "tool_choice.type");
    const dom::object function = ObjectOf(object, "function", "tool_choice.function");
    to.named = TextOf(function, "name", "tool_choice.function.name");
    if (to.named.empty()) ThrowInvalid("tool_choice.function.name", "", "the name of a tool");
    to.choice = CallChoice::kRequired;
    return;
  }
  std::string_view text;
  const bool is_text = parsed.root().get(text) == simdjson::SUCCESS;
  if (text == "none") {
    to.choice = CallChoice::kNone;
  } else if (text == "auto") {
    to.choice = CallChoice::kAuto;
  } else if (text == "required" || text == "any") {
    to.choice = CallChoice::kRequired;
  } else {
    ThrowInvalid("tool_choice", is_text ? ToText(text) : Shown(parsed.root()),
                 std::string(kChoices));
  }
}

// An object, from itself or from its text.
std::string ArgumentsOf(dom::object function, const std::string& name) {
  dom::element arguments;
  if (function["arguments"].get(arguments) != simdjson::SUCCESS || arguments.is_null()) return "{}";
  if (arguments.is_object()) return simdjson::minify(arguments);
  std::string_view text;
  if (arguments.get(text) != simdjson::SUCCESS) {
    ThrowInvalid(name, Shown(arguments), "an object, or its text");
  }
  return ArgumentsOfText(text, name);
}

}  // namespace

void ReadToolField(ToolRequest& to, const RequestValue& value) {
  if (value.name() == "tools") {
    ReadTools(to, value);
  } else if (value.name() == "tool_choice") {
    ReadChoice(to, value);
  } else if (value.name() == "parallel_tool_calls") {
    to.is_parallel = value.Boolean();
  } else if (value.name() == "include_reasoning") {
    to.includes_reasoning = value.Boolean();
  } else {
    to.separates_reasoning = value.Boolean();
  }
}

void ReadFlatTools(ToolRequest& to, const RequestValue& value, const FlatTools& flat,
                   std::vector<std::string>& unknown) {
  Parsed parsed(value);
  to.names = flat.names;
  std::string json;
  ReadEach(to, value.name(), parsed, [&](dom::object object, const std::string& place) {
    const std::string type = TextOf(object, "type", place + ".type");
    if (!type.empty() && type != flat.type) {
      ThrowUnsupported(place + ".type", type,
                       "the server runs no tools; its clients run their own, which have a name "
                       "and a schema");
    }
    AddUnknownMembers(object, flat, unknown);
    Tool tool = ReadFunction(object, place, flat.parameters_key, flat.names);
    json.append(json.empty() ? "[" : ",").append(JsonOfFlat(object, place, flat.parameters_key));
    return tool;
  });
  if (!to.tools.empty()) to.json = json.append("]");
}

void FinishTools(ToolRequest& tools) {
  if (tools.choice != CallChoice::kRequired) return;
  if (tools.tools.empty()) ThrowInvalid("tools", "", "one tool or more with this tool_choice");
  if (tools.named.empty()) return;
  const auto found = std::ranges::find(tools.tools, tools.named, &Tool::name);
  if (found == tools.tools.end()) {
    ThrowInvalid(tools.names.choice, ToText(std::string_view(tools.named)),
                 "the name of one of the tools");
  }
  tools.first = static_cast<size_t>(found - tools.tools.begin());
  tools.tools = {*found};
  tools.is_parallel = false;
}

std::string ArgumentsOfText(std::string_view text, const std::string& name) {
  if (text.empty()) return "{}";
  dom::parser parser;
  dom::element parsed;
  const bool is_object =
      parser.parse(text.data(), text.size()).get(parsed) == simdjson::SUCCESS && parsed.is_object();
  if (!is_object) {
    std::string quoted;
    AppendQuoted(quoted, text.substr(0, kMostShown + 1));
    ThrowInvalid(name, ShownText(std::move(quoted)), "an object, or its text");
  }
  return simdjson::minify(parsed);
}

void AppendCall(MessageCalls& calls, std::string_view id, std::string_view tool,
                std::string_view arguments) {
  std::string call = calls.with_objects.empty() ? R"([{"id":)" : R"(,{"id":)";
  AppendQuoted(call, id);
  call.append(R"(,"type":"function","function":{"name":)");
  AppendQuoted(call, tool);
  call.append(R"(,"arguments":)");
  calls.with_objects.append(call).append(arguments).append("}}");
  calls.with_texts.append(call);
  AppendQuoted(calls.with_texts, arguments);
  calls.with_texts.append("}}");
}

void EndCalls(MessageCalls& calls) {
  if (calls.with_objects.empty()) return;
  calls.with_objects.push_back(']');
  calls.with_texts.push_back(']');
}

MessageCalls ReadToolCalls(const RequestValue& value) {
  const Parsed parsed(value);
  MessageCalls calls;
  parsed.ForEachObject(value.name(), [&](dom::object object, const std::string& place) {
    if (object["type"].error() == simdjson::SUCCESS) CheckType(object, place + ".type");
    const std::string name = place + ".function";
    const dom::object function = ObjectOf(object, "function", name);
    const std::string tool = TextOf(function, "name", name + ".name");
    if (tool.empty()) ThrowInvalid(name + ".name", "", "the name of a tool");
    AppendCall(calls, TextOf(object, "id", place + ".id"), tool,
               ArgumentsOf(function, name + ".arguments"));
  });
  EndCalls(calls);
  return calls;
}

}  // namespace sluice::server
